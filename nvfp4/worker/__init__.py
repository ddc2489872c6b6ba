"""The submission's process: imports it, calls it, times or records what it launches."""
