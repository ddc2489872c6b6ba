"""What processes tell each other, as typed records. Imports the standard library alone."""
