"""Timings of the submission beside what a user would run instead."""
