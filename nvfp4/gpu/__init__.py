"""Shared by judge and worker on a device: the timer, shared buffers, the gate of the clock."""
