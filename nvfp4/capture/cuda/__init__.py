"""CUDA C++ submissions without a GPU: their launches as plain values.

Sources given to torch.utils.cpp_extension are compiled by nvcc to PTX and host code. The host code
runs as it is; the CUDA functions it calls are `runtime.cpp`'s, which end in `runtime` and `calls`.
`hooks.start` begins to capture. The package itself imports nothing, so that programs which need
only `flags` or `architectures` start without torch.
"""
