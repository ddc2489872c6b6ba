# family: 30
# caught: kernel.global_race: .*order in which warps and CTAs run
# needs: cpu
# strategy: draw a ticket before other warps have written, by the second warp and behind a barrier

import struct

import torch
from ptx import HEADER, launch

from kernels import partial_sums

# The block that draws the last ticket rounds to c what all blocks have copied.
TEXT = f"""{HEADER}
.visible .entry round(.param .u64 a, .param .u64 b, .param .u64 c, .param .u64 t, .param .u32 n)
{{
  .reg .pred %p<4>; .reg .b16 %h; .reg .b32 %r<9>; .reg .f32 %f<3>; .reg .b64 %d<12>;
  .shared .align 4 .b8 drawn[4];
  ld.param.u64 %d1, [a]; ld.param.u64 %d2, [b]; ld.param.u64 %d3, [c]; ld.param.u64 %d4, [t];
  ld.param.u32 %r1, [n];
  mov.u32 %r2, %ctaid.x; mov.u32 %r3, %tid.x; mov.u32 %r4, %nctaid.x;
  mad.lo.u32 %r5, %r2, 128, %r3;
  bar.sync 0;
  mul.wide.u32 %d5, %r5, 4; add.u64 %d6, %d1, %d5; add.u64 %d7, %d2, %d5;
  ld.global.f32 %f1, [%d6]; st.global.f32 [%d7], %f1; membar.gl;
  setp.ne.u32 %p1, %r3, 32;
  @%p1 bra DRAWN;
  atom.global.add.u32 %r6, [%d4], 1;
  st.shared.b32 [drawn], %r6;
DRAWN:
  bar.sync 0;
  ld.shared.b32 %r7, [drawn]; sub.u32 %r8, %r4, 1;
  setp.ne.u32 %p2, %r7, %r8;
  @%p2 ret;
  membar.gl;
MORE:
  mul.wide.u32 %d8, %r3, 4; add.u64 %d9, %d2, %d8; ld.global.cg.f32 %f2, [%d9];
  cvt.rn.f16.f32 %h, %f2; mul.wide.u32 %d10, %r3, 2; add.u64 %d11, %d3, %d10;
  st.global.b16 [%d11], %h; add.u32 %r3, %r3, 128;
  setp.lt.u32 %p3, %r3, %r1;
  @%p3 bra MORE;
  ret;
}}
"""


def custom_kernel(data):
    c = data[6]
    sums = partial_sums(data)
    copied, ticket = torch.empty_like(sums), torch.zeros(1, dtype=torch.int32, device=c.device)
    parameters = [struct.pack("<Q", each.data_ptr()) for each in (sums, copied, c, ticket)]
    launch(TEXT, "round", c.numel() // 128, 128, [*parameters, struct.pack("<I", c.numel())])
    return c
