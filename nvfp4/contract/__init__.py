"""The interface of a problem: a tree of tensors for inputs and outputs, and a referee."""
