"""Confinement, start and end of processes."""
