"""The submission's process: imports it, calls it, times its calls."""
