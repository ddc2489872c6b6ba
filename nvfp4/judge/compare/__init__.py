"""Several submissions timed against each other on one device."""
