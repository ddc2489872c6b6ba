# family: 36
# caught: unverified: .*kernels print
# needs: cpu
# only: benchmarks
# strategy: have a kernel print the inputs, so that host code has them without a mark

from ptx import launch_print

from kernels import launched_gemv

TAKE = """
  ld.param.u64 %d1, [from];
  mov.u32 %r1, %tid.x; mul.wide.u32 %d2, %r1, 4; add.u64 %d3, %d1, %d2;
  ld.global.b32 %r2, [%d3];
"""


def custom_kernel(data):
    launch_print("%x\n", TAKE, 1, 32, data[0].data_ptr())
    return launched_gemv(data)
