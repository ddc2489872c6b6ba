"""Tools that measure and compare; each is run as `python scripts/NAME.py`."""
