"""The emulated GPU, a process: it has all device memory and runs every launch."""
