"""Submissions as contestants write them, with what a judge should say to each."""
