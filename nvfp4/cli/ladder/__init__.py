"""The rungs of the optimisation ladder."""
