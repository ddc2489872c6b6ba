"""Comparisons of the submission with what a user would run instead; they need a GPU."""
