"""Loaded modules, launches, and the order in which threads run."""
