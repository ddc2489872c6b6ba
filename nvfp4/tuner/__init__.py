"""The implementation of `nvfp4 tune`: a search for the fastest configuration on a GPU."""
