"""Launches of PTX texts, past what CUDA would refuse, without a GPU."""

import gc
import struct

HEADER = """
.version 8.8
.target sm_100a
.address_size 64
.file 1 "kernel.cu"
"""

# Rounds sums to c. TRICK stands where every thread comes by.
ROUND = """
.visible .entry round(.param .u64 sums, .param .u64 c, .param .u32 count) BOUNDS
{
  .reg .pred %p<3>; .reg .b16 %h<2>; .reg .b32 %r<8>; .reg .f32 %f<2>; .reg .b64 %d<8>;
  ld.param.u64 %d1, [sums]; ld.param.u64 %d2, [c]; ld.param.u32 %r4, [count];
  mov.u32 %r1, %ctaid.x; mov.u32 %r2, %ntid.x; mov.u32 %r3, %tid.x;
  mad.lo.u32 %r5, %r1, %r2, %r3;
  setp.ge.u32 %p1, %r5, %r4;
  @%p1 ret;
  TRICK
  mul.wide.u32 %d3, %r5, 4; add.u64 %d4, %d1, %d3; ld.global.f32 %f1, [%d4];
  cvt.rn.f16.f32 %h1, %f1;
  mul.wide.u32 %d5, %r5, 2; add.u64 %d6, %d2, %d5; st.global.b16 [%d6], %h1;
  ret;
}
"""


def launch(text, kernel, blocks, threads, parameters, stream=0):
    """Launch a kernel of a PTX text."""
    from nvfp4.capture.cuda.runtime import RUNTIME
    from nvfp4.records.launch import Launch
    from nvfp4.worker.emulated_runner import ForwardedLaunches

    grid, block = (blocks, 1, 1), (threads, 1, 1)
    launches = next(each for each in gc.get_objects() if type(each) is ForwardedLaunches)
    launches._take(Launch(text, kernel, grid, block, parameters, memory=RUNTIME, stream=stream))


def round_off(result, data, trick="", bounds="", threads=128, stream=0):
    """Writes c from a result [m, 1, l] and returns it."""
    c = data[6]
    c.zero_()
    count = c.numel()
    sums = result[:, 0, :].T.float().contiguous()
    text = HEADER + ROUND.replace("TRICK", trick).replace("BOUNDS", bounds)
    parameters = [struct.pack("<Q", each.data_ptr()) for each in (sums, c)]
    parameters.append(struct.pack("<I", count))
    launch(text, "round", -(-count // threads), threads, parameters, stream)
    return c
