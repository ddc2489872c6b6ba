"""Tensor memory and the instructions of the fifth generation of tensor cores (tcgen05)."""
