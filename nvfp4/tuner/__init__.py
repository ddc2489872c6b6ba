"""What `nvfp4 tune` runs: a search for the fastest configuration on a GPU."""
