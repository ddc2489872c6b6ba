#!POPCORN leaderboard nvfp4_gemv
#!POPCORN gpu NVIDIA
"""A TMA pipeline: bulk tensor copies into four stages, handed over by mbarriers.

The first warp asks the copy engine for whole tiles of a and b; no thread computes their addresses.
A stage has two mbarriers. `full` completes when the tile's bytes have arrived, `empty` when all
threads have read them, and only then is the stage filled again. Each barrier's phase bit flips
each time the pipeline has gone round.

E2M1 values are multiples of 0.5, so twice a value is an integer: prmt looks four of them up in a
table, and dp4a multiplies and adds four pairs. Needs the copy engine of sm_90.
"""

import functools
from typing import Any

import cutlass
import cutlass.cute as cute
from cutlass import Float8E4M3FN, Float16, Float32, Int32, Int64, Uint32
from cutlass._mlir.dialects import llvm
from cutlass.cute.nvgpu import cpasync
from cutlass.cutlass_dsl import T, dsl_user_op

from task import input_t, output_t

ROWS = 128  # of a CTA, a thread each
WORDS = 8  # 64 values of each row a stage
STAGES = 4
STAGE_BYTES = 4 * WORDS * (ROWS + 1)  # the tiles of a and b
B_PITCH = 32  # words from stage to stage of b: the engine writes to multiples of 128 bytes


@dsl_user_op
def prmt(low: Any, high: Any, selector: Any, *, loc: Any = None, ip: Any = None) -> Any:
    """Byte i of the result is byte (nibble i of selector) of high:low.

    Where the nibble's top bit is set, it is the sign of that byte, repeated eight times.
    """
    operands = [Uint32(x).ir_value(loc=loc, ip=ip) for x in (low, high, selector)]
    text = "prmt.b32 $0, $1, $2, $3;"
    return Uint32(llvm.inline_asm(T.i32(), operands, text, "=r,r,r,r", loc=loc, ip=ip))


@dsl_user_op
def dp4a(a: Any, b: Any, c: Any, *, loc: Any = None, ip: Any = None) -> Any:
    """c plus the dot product of the four unsigned bytes of a and the four of b."""
    operands = [Uint32(x).ir_value(loc=loc, ip=ip) for x in (a, b, c)]
    text = "dp4a.u32.u32 $0, $1, $2, $3;"
    return Uint32(llvm.inline_asm(T.i32(), operands, text, "=r,r,r,r", loc=loc, ip=ip))


def doubled(codes: Any) -> Any:
    """Twice the values of the four E2M1 codes in the low half of a word, one byte each.

    prmt is the table lookup: bytes 0 to 7 of the table are 0, 1, 2, 3, 4, 6, 8, 12. A negative
    code has its nibble's top bit set and yields the sign of a table byte, which is 0.
    """
    return prmt(0x03020100, 0x0C080604, codes)


def dot(a: Any, b: Any) -> Any:
    """Four times the dot product of eight E2M1 values of a and eight of b, a word each; exact."""
    same, opposite = Uint32(0), Uint32(0)  # products of equal signs, and of opposite signs
    for shift in (0, 16):
        a_codes, b_codes = a >> shift, b >> shift
        a_positive, a_negative = doubled(a_codes), doubled(a_codes ^ 0x8888)
        b_positive, b_negative = doubled(b_codes), doubled(b_codes ^ 0x8888)
        same = dp4a(a_positive, b_positive, dp4a(a_negative, b_negative, same))
        opposite = dp4a(a_positive, b_negative, dp4a(a_negative, b_positive, opposite))
    return Int32(same) - Int32(opposite)


def k_major(address: Any, dtype: Any, rows: Any, columns: Any, l: Any, divby: int) -> Any:
    """The tensor [rows, columns, l] at a global address, stored as [l, rows, columns].

    divby divides columns: the compiler needs that, and the alignment, to load 16 bytes at once.
    """
    pointer = cute.make_ptr(dtype, address, cute.AddressSpace.gmem, assumed_align=16)
    columns = cute.assume(Int32(columns), divby=divby)
    layout = cute.make_layout((rows, columns, l), stride=(columns, 1, rows * columns))
    return cute.make_tensor(pointer, layout)


@cute.kernel
def gemv_kernel(
    load_a: cute.CopyAtom,
    tA: cute.Tensor,  # [m, k / 8, l] coordinates in a, for the copy engine
    load_b: cute.CopyAtom,
    tB: cute.Tensor,  # [128, k / 8, l] coordinates in b
    mSFA: cute.Tensor,  # [m, k / 16, l] Float8E4M3FN
    mSFB: cute.Tensor,  # [128, k / 16, l] Float8E4M3FN
    mC: cute.Tensor,  # [m, 1, l] Float16
) -> None:
    tidx, _, _ = cute.arch.thread_idx()
    bidx, _, batch = cute.arch.block_idx()
    row = bidx * ROWS + tidx
    warp = cute.arch.make_warp_uniform(cute.arch.warp_idx())
    steps = mSFA.shape[1] // 4

    full = cute.arch.alloc_smem(Int64, STAGES)
    empty = cute.arch.alloc_smem(Int64, STAGES)
    a_storage = cute.arch.alloc_smem(Uint32, STAGES * ROWS * WORDS, alignment=128)
    b_storage = cute.arch.alloc_smem(Uint32, STAGES * B_PITCH, alignment=128)
    sA = cute.make_tensor(
        a_storage, cute.make_layout((ROWS, WORDS, STAGES), stride=(WORDS, 1, ROWS * WORDS))
    )
    sB = cute.make_tensor(b_storage, cute.make_layout((1, WORDS, STAGES), stride=(0, 1, B_PITCH)))
    if tidx == 0:
        for stage in cutlass.range_constexpr(STAGES):
            cute.arch.mbarrier_init(full + stage, 1)
            cute.arch.mbarrier_init(empty + stage, ROWS)
        cute.arch.mbarrier_init_fence()
    cute.arch.sync_threads()

    # The tiles that this CTA reads, and the stages they go to, as the copy engine wants them.
    gA = cute.local_tile(tA, (ROWS, WORDS, 1), (bidx, None, batch))  # (ROWS, WORDS, 1, steps)
    gB = cute.local_tile(tB, (1, WORDS, 1), (0, None, batch))  # (1, WORDS, 1, steps)
    alone = cute.make_layout(1)  # no multicast
    to_a, from_a = cpasync.tma_partition(
        load_a, 0, alone, cute.group_modes(sA, 0, 2), cute.group_modes(gA, 0, 3)
    )
    to_b, from_b = cpasync.tma_partition(
        load_b, 0, alone, cute.group_modes(sB, 0, 2), cute.group_modes(gB, 0, 3)
    )

    if warp == 0:
        for step in cutlass.range(cutlass.min(steps, STAGES)):
            with cute.arch.elect_one():
                cute.arch.mbarrier_arrive_and_expect_tx(full + step, STAGE_BYTES)
            cute.copy(load_a, from_a[None, step], to_a[None, step], tma_bar_ptr=full + step)
            cute.copy(load_b, from_b[None, step], to_b[None, step], tma_bar_ptr=full + step)

    total = Float32(0)
    for step in cutlass.range(steps):
        stage, phase = step % STAGES, (step // STAGES) % 2
        cute.arch.mbarrier_wait(full + stage, phase)
        a = sA[tidx, None, stage].load()
        b = sB[0, None, stage].load()
        cute.arch.fence_view_async_shared()  # or the next copy may overtake these loads
        cute.arch.mbarrier_arrive(empty + stage)
        ahead = step + STAGES
        if warp == 0 and ahead < steps:
            cute.arch.mbarrier_wait(empty + stage, phase)
            with cute.arch.elect_one():
                cute.arch.mbarrier_arrive_and_expect_tx(full + stage, STAGE_BYTES)
            cute.copy(load_a, from_a[None, ahead], to_a[None, stage], tma_bar_ptr=full + stage)
            cute.copy(load_b, from_b[None, ahead], to_b[None, stage], tma_bar_ptr=full + stage)
        sfa = cute.local_tile(mSFA[row, None, batch], (4,), (step,)).load().to(Float32)
        sfb = cute.local_tile(mSFB[0, None, batch], (4,), (step,)).load().to(Float32)
        for j in cutlass.range_constexpr(4):
            inner = dot(a[2 * j], b[2 * j]) + dot(a[2 * j + 1], b[2 * j + 1])
            total += Float32(inner) * (sfa[j] * sfb[j])
    mC[row, 0, batch] = (total * 0.25).to(Float16)  # dot is four times too large


@cute.jit
def gemv(
    a: Int64,
    b: Int64,
    sfa: Int64,
    sfb: Int64,
    c: Int64,
    m: Int32,
    k_packed: Int32,
    l: Int32,
) -> None:
    """Launch the kernel on tensors at these addresses; k_packed = k / 2, the bytes of a row."""
    mA = k_major(a, Uint32, m, k_packed // 4, l, 8)
    mB = k_major(b, Uint32, 128, k_packed // 4, l, 8)
    mSFA = k_major(sfa, Float8E4M3FN, m, k_packed // 8, l, 4)
    mSFB = k_major(sfb, Float8E4M3FN, 128, k_packed // 8, l, 4)
    mC = k_major(c, Float16, m, 1, l, 1)
    operation = cpasync.CopyBulkTensorTileG2SOp()
    stage_a = cute.make_layout((ROWS, WORDS, 1), stride=(WORDS, 1, 0))
    stage_b = cute.make_layout((1, WORDS, 1), stride=(0, 1, 0))
    load_a, tA = cpasync.make_tiled_tma_atom(operation, mA, stage_a, (ROWS, WORDS, 1))
    load_b, tB = cpasync.make_tiled_tma_atom(operation, mB, stage_b, (1, WORDS, 1))
    gemv_kernel(load_a, tA, load_b, tB, mSFA, mSFB, mC).launch(
        grid=(m // ROWS, 1, l), block=(ROWS, 1, 1)
    )


@functools.cache
def compiled() -> Any:
    """gemv, compiled once for all shapes: sizes and addresses are arguments of each call."""
    return cute.compile(gemv, *[Int64(0)] * 5, *[Int32(0)] * 3)


def custom_kernel(data: input_t) -> output_t:
    a, b, sfa, sfb, _, _, c = data
    compiled()(*(tensor.data_ptr() for tensor in (a, b, sfa, sfb, c)), *a.shape)
    return c
