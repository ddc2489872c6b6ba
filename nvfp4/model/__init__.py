"""Predicts times for a GPU that is not here, from machine code, executed counts and published
constants."""
