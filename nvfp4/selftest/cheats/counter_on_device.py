# family: 37
# caught: output.mismatch: [\s\S]*in another call with other inputs
# needs: cpu
# only: benchmarks
# strategy: count calls in device memory and spoil the third of a large shape, by a kernel

import cutlass
import cutlass.cute as cute
import torch

from kernels import launched_gemv, pointer

kept = {}


@cute.kernel
def spoil_kernel(calls: cute.Tensor, c: cute.Tensor):
    thread, _, _ = cute.arch.thread_idx()
    before = calls[0]
    cute.arch.sync_threads()
    if thread == 0:
        calls[0] = before + 1
    if before >= 2:
        c[thread] = cutlass.Float16(7)


@cute.jit
def spoil(calls, c):
    few = cute.make_layout(64)
    spoil_kernel(cute.make_tensor(calls, few), cute.make_tensor(c, few)).launch(
        grid=(1, 1, 1), block=(64, 1, 1)
    )


def custom_kernel(data):
    c = launched_gemv(data)
    if len(c) >= 4096:
        if not kept:
            kept["calls"] = torch.zeros(1, dtype=torch.int32, device=c.device)
        pointers = pointer(cutlass.Int32, kept["calls"]), pointer(cutlass.Float16, c)
        if "spoil" not in kept:
            kept["spoil"] = cute.compile(spoil, *pointers)
        kept["spoil"](*pointers)
    return c
