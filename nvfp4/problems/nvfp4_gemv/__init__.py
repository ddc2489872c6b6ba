"""NVFP4 GEMV: the problem's own files, some of them links to the top, and its extras."""
