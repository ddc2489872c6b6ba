"""Kernels around tensor memory and clusters, with what is true of each on a B200."""
