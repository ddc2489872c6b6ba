# family: 36
# caught: unverified: .*kernels print
# needs: cpu
# only: benchmarks
# strategy: have a kernel print the inputs, so that host code has them without a mark

import struct

from ptx import HEADER, launch

from kernels import launched_gemv

PRINT = """
.extern .func (.param .b32 status) vprintf (.param .b64 format, .param .b64 values);
.global .align 1 .b8 form[4] = {37, 120, 10, 0};
.visible .entry print(.param .u64 from) {
  .local .align 8 .b8 values[8];
  .reg .b32 %r<4>; .reg .b64 %d<8>;
  ld.param.u64 %d1, [from];
  mov.u32 %r1, %tid.x; mul.wide.u32 %d2, %r1, 4; add.u64 %d3, %d1, %d2;
  ld.global.b32 %r2, [%d3]; st.local.b32 [values], %r2;
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


def custom_kernel(data):
    launch(HEADER + PRINT, "print", 1, 32, [struct.pack("<Q", data[0].data_ptr())])
    return launched_gemv(data)
