"""Confines, starts and ends processes."""
