"""What every problem has: a tree of tensors for inputs and outputs, and a referee."""
