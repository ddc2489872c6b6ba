# family: 40
# caught: output.mismatch: .*elements are wrong
# needs: cpu
# strategy: have a kernel print numbers so wide that the emulated GPU has no memory for the text

from ptx import HEADER, launch

PRINT = """
.extern .func (.param .b32 status) vprintf (.param .b64 format, .param .b64 values);
.global .align 1 .b8 form[12] = {37, 57, 57, 57, 57, 57, 57, 57, 57, 57, 120, 0};
.visible .entry print() {
  .local .align 8 .b8 values[8];
  .reg .b32 %r<4>; .reg .b64 %d<8>;
  mov.u32 %r1, 1; st.local.b32 [values], %r1;
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
    launch(HEADER + PRINT, "print", 8, 128, [])
    return data[6]
