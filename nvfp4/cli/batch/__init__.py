"""Many submissions."""
