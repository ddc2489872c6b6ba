"""Judges a submission: starts judges, reads their results, decides what they say."""
