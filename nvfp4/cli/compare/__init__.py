"""`nvfp4 compare`: whether one submission is faster than another."""
