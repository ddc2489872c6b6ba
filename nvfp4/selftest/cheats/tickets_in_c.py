# family: 30
# caught: kernel.order_dependent: .*here it matters who comes first
# needs: cpu
# strategy: keep a counter of thread blocks in c, and be right only where they come in order

from ptx import round_off

from gemv import gemv

# c is zero. The first thread of each block draws a ticket from the last two elements; the last
# block's results overwrite them.
TICKET = """
.reg .pred %q<3>; .reg .b32 %t<4>; .reg .b64 %u<3>;
.shared .align 4 .b8 drawn[4];
mul.wide.u32 %u0, %r4, 2; add.u64 %u1, %d2, %u0;
setp.ne.u32 %q0, %r3, 0;
@%q0 bra DRAWN;
atom.global.add.u32 %t0, [%u1+-4], 1;
st.shared.b32 [drawn], %t0;
DRAWN:
bar.sync 0;
ld.shared.b32 %t1, [drawn];
setp.ne.u32 %q1, %t1, %r1;
@%q1 ret;
"""


def custom_kernel(data):
    return round_off(gemv(data).clone(), data, trick=TICKET, threads=32)
