# strategy: have a kernel print more than a message holds
# needs: cpu

import struct

from ptx import HEADER, launch

from kernels import launched_gemv

LETTERS = ", ".join(["65"] * 400)
PRINT = f"""
.extern .func (.param .b32 status) vprintf (.param .b64 format, .param .b64 values);
.global .align 1 .b8 form[402] = {{{LETTERS}, 10, 0}};
.visible .entry print(.param .u64 unused) {{
  .local .align 8 .b8 values[8];
  .reg .b32 %r<2>; .reg .b64 %d<4>;
  mov.u64 %d0, form; cvta.global.u64 %d1, %d0; mov.u64 %d2, values; cvta.local.u64 %d3, %d2;
  {{
    .param .b64 a; .param .b64 b; .param .b32 s;
    st.param.b64 [a], %d1; st.param.b64 [b], %d3;
    call.uni (s), vprintf, (a, b);
    ld.param.b32 %r1, [s];
  }}
  ret;
}}
"""


def custom_kernel(data):
    launch(HEADER + PRINT, "print", 24, 128, [struct.pack("<Q", 0)])
    return launched_gemv(data)
