"""Costs of each line of a submission."""
