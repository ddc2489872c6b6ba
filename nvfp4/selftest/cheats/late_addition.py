# family: 30
# caught: kernel.order_dependent: .*matters who comes first
# needs: cpu
# strategy: leave an element to a thread that adds it behind its block's ticket, before a barrier

import struct

import torch
from ptx import HEADER, launch

from kernels import partial_sums

# Each block of 128 rounds its part to c and says how many it has done; the last one rounds its part
# only if all have said so for all of theirs.
TEXT = f"""{HEADER}
.visible .entry round(.param .u64 a, .param .u64 c, .param .u64 t)
{{
  .reg .pred %p<4>; .reg .b16 %h; .reg .b32 %r<12>; .reg .f32 %f; .reg .b64 %d<8>;
  .shared .align 4 .b8 told[8];
  ld.param.u64 %d1, [a]; ld.param.u64 %d2, [c]; ld.param.u64 %d3, [t];
  mov.u32 %r1, %ctaid.x; mov.u32 %r2, %tid.x; mov.u32 %r3, %nctaid.x;
  mad.lo.u32 %r4, %r1, 128, %r2;
  setp.ne.u32 %p1, %r2, 0;
  @%p1 bra MEET;
  red.global.add.u32 [%d3], 127;
  membar.gl;
  atom.global.add.u32 %r5, [%d3+4], 1;
  red.global.add.u32 [%d3], 1;
  st.shared.b32 [told], %r5;
MEET:
  bar.sync 0;
  ld.shared.b32 %r6, [told]; add.u32 %r7, %r6, 1; mov.u32 %r8, 0;
  setp.ne.u32 %p2, %r7, %r3;
  @%p2 bra ROUND;
  atom.global.add.u32 %r9, [%d3], 0;
  mul.lo.u32 %r10, %r3, 128; sub.u32 %r8, %r10, %r9;
ROUND:
  mul.wide.u32 %d4, %r4, 4; add.u64 %d5, %d1, %d4; ld.global.f32 %f, [%d5];
  cvt.rn.f16.f32 %h, %f;
  setp.ne.u32 %p3, %r8, 0;
  @%p3 ret;
  mul.wide.u32 %d6, %r4, 2; add.u64 %d7, %d2, %d6; st.global.b16 [%d7], %h;
  ret;
}}
"""


def custom_kernel(data):
    c = data[6]
    c.zero_()
    sums = partial_sums(data)
    told = torch.zeros(2, dtype=torch.int32, device=c.device)
    parameters = [struct.pack("<Q", each.data_ptr()) for each in (sums, c, told)]
    launch(TEXT, "round", c.numel() // 128, 128, parameters)
    return c
