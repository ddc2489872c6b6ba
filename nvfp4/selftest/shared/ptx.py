"""Launches of PTX texts, past what CUDA would refuse, without a GPU."""

import gc
import struct

HEADER = """
.version 8.8
.target sm_100a
.address_size 64
.file 1 "kernel.cu"
"""

# A kernel that prints a word; BODY sets %r2 to it, FORMAT is text as numbers.
PRINT = """
.extern .func (.param .b32 status) vprintf (.param .b64 format, .param .b64 values);
.global .align 1 .b8 form[] = {FORMAT, 0};
.visible .entry print(.param .u64 from) {
  .local .align 8 .b8 values[8];
  .reg .b32 %r<4>; .reg .b64 %d<8>;
  BODY
  st.local.b32 [values], %r2;
  mov.u64 %d4, form; cvta.global.u64 %d5, %d4; mov.u64 %d6, values; cvta.local.u64 %d7, %d6;
  {
    .param .b64 a; .param .b64 b; .param .b32 s;
    st.param.b64 [a], %d5; st.param.b64 [b], %d7;
    call.uni (s), vprintf, (a, b);
    ld.param.b32 %r3, [s];
  }
  ret;
}
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


def launch_print(said, body, blocks, threads, address):
    """Launch a kernel that prints in the format `said` the word in %r2, which `body` sets; it finds
    an address at [from]."""
    text = HEADER + PRINT.replace("FORMAT", ", ".join(map(str, said.encode())))
    parameters = [struct.pack("<Q", address)]
    launch(text.replace("BODY", body), "print", blocks, threads, parameters)


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
