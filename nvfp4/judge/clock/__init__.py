"""The judge's view of times: its own clock, the limits of the device, statistics."""
