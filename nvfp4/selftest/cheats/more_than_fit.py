# family: 37
# caught: kernel.runaway_kernel: .*waits for ever in a loop.*148 of 296 CTAs have started
# needs: cpu
# strategy: let more thread blocks wait for each other than a GPU's registers hold at a time

import struct

import torch
from ptx import HEADER, launch

from kernels import launched_gemv

BLOCKS, VALUES = 296, 44
LOADS = "".join(f"ld.volatile.global.u32 %v{i}, [%d1+{4 * i}];\n" for i in range(VALUES))
USES = "".join(f"xor.b32 %r1, %r1, %v{i};\n" for i in range(VALUES))
TEXT = f"""{HEADER}
.visible .entry meet(.param .u64 values, .param .u64 count) {{
  .reg .pred %p<4>; .reg .b32 %r<4>; .reg .b32 %v<{VALUES}>; .reg .b64 %d<3>;
  ld.param.u64 %d1, [values]; ld.param.u64 %d2, [count]; mov.u32 %r1, %tid.x;
  setp.ne.u32 %p1, %r1, 0;
  {LOADS}
  @%p1 bra MET;
  atom.add.acq_rel.gpu.global.u32 %r2, [%d2], 1;
WAIT:
  ld.acquire.gpu.global.u32 %r2, [%d2];
  setp.lt.u32 %p2, %r2, {BLOCKS};
  @%p2 bra WAIT;
MET:
  bar.sync 0;
  {USES}
  setp.eq.u32 %p3, %r1, 5000;
  @%p3 st.global.u32 [%d1], %r1;
  ret;
}}
"""


def custom_kernel(data):
    values = torch.zeros(VALUES + 1, dtype=torch.int32, device="cuda")
    places = values.data_ptr(), values.data_ptr() + 4 * VALUES
    launch(TEXT, "meet", BLOCKS, 1024, [struct.pack("<Q", each) for each in places])
    return launched_gemv(data)
