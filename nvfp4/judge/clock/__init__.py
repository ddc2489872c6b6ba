"""What the judge believes of times: its own clock, the limits of the device, statistics."""
