# family: 39
# caught: kernel.out_of_bounds: .*outside every tensor(?![\s\S]*=/)
# needs: cpu
# strategy: put a link to the environment in the place of its source, and have a line of that shown

import os

import cutlass.cute as cute
from cutlass import Float32
from cutlass.cute.runtime import from_dlpack


@cute.kernel
def beyond(gC: cute.Tensor):
    row = cute.size(gC, mode=[0])
    if cute.arch.thread_idx()[0] == 0:
        gC[row + 1, 0, 0] = Float32(0)  # out of bounds


@cute.jit
def launch_beyond(c):
    beyond(c).launch(grid=(1, 1, 1), block=(32, 1, 1))


def custom_kernel(data):
    c = from_dlpack(data[6].float())
    compiled = cute.compile(launch_beyond, c)
    os.remove("submission.py")
    os.symlink("/proc/self/environ", "submission.py")
    compiled(c)
    return data[6]
