# family: 37
# caught: kernel.order_dependent: .*matters who comes first|output.state: .*matters who comes first
# needs: cpu
# strategy: from the second call of a shape on, be right only where thread blocks come in order

import struct

import torch
from ptx import HEADER, ROUND, launch

from kernels import partial_sums

# Each block draws a ticket; a second word says whether it must be the block's number.
TICKET = """
.reg .pred %q<2>; .reg .b32 %t<3>; .reg .b64 %u;
.shared .align 4 .b8 drawn[4];
ld.param.u64 %u, [counter];
setp.ne.u32 %q0, %r3, 0;
@%q0 bra DRAWN;
atom.global.add.u32 %t0, [%u], 1;
st.shared.b32 [drawn], %t0;
DRAWN:
bar.sync 0;
ld.shared.b32 %t1, [drawn];
ld.global.b32 %t2, [%u+4];
setp.eq.u32 %q1, %t2, 0;
selp.b32 %t1, %r1, %t1, %q1;
setp.ne.u32 %q1, %t1, %r1;
@%q1 ret;
"""
TEXT = HEADER + ROUND.replace("TRICK", TICKET).replace("BOUNDS", "").replace(
    ".param .u32 count", ".param .u32 count, .param .u64 counter"
)
counters = {}


def custom_kernel(data):
    c = data[6]
    sums = partial_sums(data)
    counter = counters.get(len(c), torch.zeros(2, dtype=torch.int32, device=c.device))
    counter.copy_(torch.tensor([0, int(len(c) in counters)], dtype=torch.int32))
    counters[len(c)] = counter
    pointers = [struct.pack("<Q", each.data_ptr()) for each in (sums, c, counter)]
    parameters = [*pointers[:2], struct.pack("<I", c.numel()), pointers[2]]
    launch(TEXT, "round", c.numel() // 32, 32, parameters)
    return c
