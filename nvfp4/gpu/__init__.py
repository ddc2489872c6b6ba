"""What judge and worker share on a device: the timer, shared buffers, the gate of the clock."""
