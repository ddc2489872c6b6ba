"""A time for a GPU that is not here: machine code, executed counts and published constants."""
