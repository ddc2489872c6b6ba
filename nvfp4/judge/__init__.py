"""The judge's process: inputs, calls, checks, times and the verdict. Never a submission's code."""
