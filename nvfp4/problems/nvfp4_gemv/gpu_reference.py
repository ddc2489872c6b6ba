"""The reference in one kernel: a benchmark checks more than a hundred outputs on a GPU.

The kernel, PTX that the driver compiles, knows no number format: it looks up what the reference
makes of every pair of bytes. Its first result for each shape is compared with the reference's, bit
for bit, and where they differ the reference is used.
"""

import struct
from functools import cache

import torch

from nvfp4.problems.nvfp4_gemv import reference
from nvfp4.problems.nvfp4_gemv.layout import layouts
from nvfp4.problems.nvfp4_gemv.task import input_t, n_padded, output_t, sf_vec_size
from nvfp4.records.launch import Dim3
from nvfp4.retarget.driver import Kernel, installed_driver
from nvfp4.retarget.errors import DriverError

WARPS = 8
"""Warps of a CTA; each computes a row."""

_MOST_BATCHES = 65535
"""The largest grid dimension in y."""

PARAMETER_BYTES = (8,) * 7 + (4, 4)

_ADD_BYTE = """
    bfe.u32 x, {a}, {bit}, 8; bfe.u32 y, {b}, {bit}, 8; mad.lo.u32 x, x, 256, y;
    mad.wide.u32 at, x, 2, dots; ld.global.nc.s16 more, [at]; cvt.s32.s16 x, more;
    add.s32 dot, dot, x;"""

_ADD_LANE = """
    mov.b64 {{x, y}}, sum; shfl.sync.bfly.b32 x, x, {lanes}, 31, -1;
    shfl.sync.bfly.b32 y, y, {lanes}, 31, -1; mov.b64 other, {{x, y}};
    add.rn.f64 sum, sum, other;"""

_TO_THE_DOT = """
.version 7.4
.target sm_70
.address_size 64
.visible .entry gemv(
    .param .u64 a_at, .param .u64 b_at, .param .u64 sfa_at, .param .u64 sfb_at,
    .param .u64 dots_at, .param .u64 scales_at, .param .u64 c_at,
    .param .u32 m_rows, .param .u32 k_blocks)
{
    .reg .pred done; .reg .b16 more; .reg .f64 sum, other, scale;
    .reg .b32 lane, block, blocks, m, rows, row, batch, x, y, a0, a1, b0, b1; .reg .s32 dot;
    .reg .b64 a, b, sfa, sfb, dots, scales, c, at, place;
    ld.param.u64 a, [a_at]; ld.param.u64 b, [b_at]; ld.param.u64 sfa, [sfa_at];
    ld.param.u64 sfb, [sfb_at]; ld.param.u64 dots, [dots_at]; ld.param.u64 scales, [scales_at];
    ld.param.u64 c, [c_at]; ld.param.u32 m, [m_rows]; ld.param.u32 blocks, [k_blocks];
    mov.u32 lane, %%tid.x; mov.u32 row, %%ctaid.x; mov.u32 x, %%tid.y; mov.u32 y, %%ntid.y;
    mad.lo.u32 row, row, y, x; mov.u32 batch, %%ctaid.y;
    setp.ge.u32 done, row, m; @done ret;
    mad.lo.u32 row, batch, m, row; // of all batches
    mul.wide.u32 place, row, blocks; add.s64 sfa, sfa, place; mad.lo.s64 a, place, 8, a;
    mul.lo.u32 rows, batch, %d; mul.wide.u32 place, rows, blocks;
    add.s64 sfb, sfb, place; mad.lo.s64 b, place, 8, b;
    mov.f64 sum, 0d0000000000000000; mov.u32 block, lane;
next:
    setp.ge.u32 done, block, blocks; @done bra reduce;
    cvt.u64.u32 place, block; mad.lo.s64 at, place, 8, a; ld.global.nc.v2.b32 {a0, a1}, [at];
    mad.lo.s64 at, place, 8, b; ld.global.nc.v2.b32 {b0, b1}, [at];
    mov.s32 dot, 0;
"""

_TO_THE_SUM = """
    add.s64 at, sfa, place; ld.global.nc.u8 x, [at]; mad.wide.u32 at, x, 8, scales;
    ld.global.nc.f64 scale, [at];
    add.s64 at, sfb, place; ld.global.nc.u8 x, [at]; mad.wide.u32 at, x, 8, scales;
    ld.global.nc.f64 other, [at];
    mul.rn.f64 scale, scale, other; cvt.rn.f64.s32 other, dot; fma.rn.f64 sum, other, scale, sum;
    add.u32 block, block, 32; bra next;
reduce:
"""

_TO_THE_END = """
    setp.ne.u32 done, lane, 0; @done ret;
    cvt.rn.f16.f64 more, sum; mad.wide.u32 at, row, 2, c; st.global.b16 [at], more;
    ret;
}
"""
PTX = "".join(
    [
        _TO_THE_DOT % n_padded,
        *(
            _ADD_BYTE.format(a=f"a{w}", b=f"b{w}", bit=bit)
            for w in (0, 1)
            for bit in (0, 8, 16, 24)
        ),
        _TO_THE_SUM,
        *(_ADD_LANE.format(lanes=lanes) for lanes in (16, 8, 4, 2, 1)),
        _TO_THE_END,
    ]
)


@cache
def tables(device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
    """Return two tables: the dot product of each pair of E2M1 bytes, in quarters, int16 [256, 256];
    and half the value of each E4M3 byte, float64 [256]."""
    packed = torch.zeros(256, 4, dtype=torch.uint8)
    packed[:, 0] = every = torch.arange(256, dtype=torch.uint8)
    low, high = (each.double()[:, 0] * 2.0**14 for each in reference.e2m1_streams(packed)[:2])
    dots = 4 * (torch.outer(low, low) + torch.outer(high, high))
    scales = every.view(torch.float8_e4m3fn).double() / 2
    return dots.to(torch.int16).to(device), scales.to(device)


def launch_of(
    storages: list[torch.Tensor], shape: tuple[int, int, int]
) -> tuple[Dim3, Dim3, list[bytes]]:
    """Return grid, block and parameters. storages: a, b, sfa, sfb, the tables, and c as it lies in
    memory."""
    m, k, l = shape
    grid, block = (-(-m // WARPS), l, 1), (32, WARPS, 1)
    addresses = [struct.pack("<Q", each.data_ptr()) for each in storages]
    return grid, block, [*addresses, struct.pack("<I", m), struct.pack("<I", k // sf_vec_size)]


@cache
def _kernel() -> Kernel | None:
    """Load the kernel; None if the driver refuses it."""
    try:
        return installed_driver().load(PTX).kernel("gemv", PARAMETER_BYTES)
    except DriverError:
        return None


def _by_kernel(kernel: Kernel, data: input_t) -> output_t:
    c = data[6]
    shape = m, _, l = len(c), 2 * data[0].shape[1], c.shape[2]
    of = layouts(*shape)
    storages = [of[name].flat(data[number]) for number, name in enumerate(("a", "b", "sfa", "sfb"))]
    out = torch.empty((l, m, 1), dtype=torch.float16, device=c.device)
    grid, block, parameters = launch_of([*storages, *tables(c.device), out], shape)
    kernel.launch(grid, block, 0, parameters, torch.cuda.current_stream(c.device).cuda_stream)
    return out.permute(1, 2, 0)


_agrees: dict[torch.Size, bool] = {}
"""Whether the kernel's first result for each shape of a was right."""


def expected_output(data: input_t) -> output_t:
    """Return the output of ``reference.ref_kernel``, by a faster kernel where it agrees."""
    shape = data[0].shape
    fits = data[0].is_cuda and shape[2] <= _MOST_BATCHES
    kernel = _kernel() if fits and _agrees.get(shape, True) else None
    if kernel is None:
        return reference.ref_kernel(data)
    found = _by_kernel(kernel, data)
    if shape not in _agrees:
        expected = reference.ref_kernel(data)
        _agrees[shape] = torch.equal(found, expected)
        return expected
    return found
