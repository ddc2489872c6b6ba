"""The process that runs a problem's own code: inputs, reference and checker."""
