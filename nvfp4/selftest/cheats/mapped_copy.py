# family: 36
# caught: unverified: .*host code and kernels share memory
# needs: cpu
# only: benchmarks
# strategy: have the inputs copied into memory that the host maps, where no launch has it

import ctypes

import torch

from kernels import launched_gemv

mapped = []


def on_host(tensor):
    from nvfp4.capture import host_access

    nbytes = tensor.numel() * tensor.element_size()
    host_access.copy(mapped[0], tensor.data_ptr(), nbytes)
    return torch.frombuffer((ctypes.c_uint8 * nbytes).from_address(mapped[0]), dtype=torch.uint8)


def custom_kernel(data):
    from nvfp4.capture.cuda.runtime import RUNTIME

    if not mapped:
        mapped.append(RUNTIME.allocate(data[0].numel(), "cudaHostAlloc", shared=True))
    on_host(data[0]).sum()
    mapped_before = RUNTIME._allocated.pop(mapped[0])
    try:
        return launched_gemv(data)
    finally:
        RUNTIME._allocated[mapped[0]] = mapped_before
