"""Tensors that judge, worker and executor share, on the host or on a device."""
