"""What confines, starts and ends processes."""
