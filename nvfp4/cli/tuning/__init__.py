"""Searches configurations."""
