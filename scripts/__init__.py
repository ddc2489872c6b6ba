"""Tools that measure and check; run them from the repository root as `python -m scripts.NAME`."""
