"""A pipeline of CuTe DSL whose tiles are multicast to a cluster: right, and with mistakes."""

import cutlass
import pytest
import torch
from cutlass import Int32, Int64, cute, pipeline
from cutlass.cute.nvgpu import cpasync
from cutlass.cute.runtime import from_dlpack

from nvfp4.emulation import Emulation
from nvfp4.emulator.errors import EmulatorError

STAGES, STEPS, WORDS = 2, 5, 64


@cute.kernel
def pipelined_kernel(
    load: cute.CopyAtom, tX: cute.Tensor, out: cute.Tensor, mistake: cutlass.Constexpr
) -> None:
    tidx, _, _ = cute.arch.thread_idx()
    block, _, _ = cute.arch.block_idx()
    warp = cute.arch.make_warp_uniform(cute.arch.warp_idx())
    rank = cute.arch.make_warp_uniform(cute.arch.block_idx_in_cluster())
    storage = cute.arch.alloc_smem(Int64, 2 * STAGES)
    tiles = cute.arch.alloc_smem(Int32, STAGES * WORDS, alignment=128)
    sX = cute.make_tensor(tiles, cute.make_layout((1, WORDS, STAGES), stride=(0, 1, WORDS)))
    consumers = 2 if mistake == "counts_one_block" else 4  # a thread a warp and block
    pipe = pipeline.PipelineTmaAsync.create(
        barrier_storage=storage,
        num_stages=STAGES,
        producer_group=pipeline.CooperativeGroup(pipeline.Agent.Thread),
        consumer_group=pipeline.CooperativeGroup(pipeline.Agent.Thread, consumers),
        tx_count=4 * WORDS,
        cta_layout_vmnk=cute.make_layout((1, 2, 1, 1)),
    )
    gX = cute.local_tile(tX, (1, WORDS), (None, 0))
    to_x, from_x = cpasync.tma_partition(
        load, rank, cute.make_layout(2), cute.group_modes(sX, 0, 2), cute.group_modes(gX, 0, 2)
    )
    mask = 0b01 if cutlass.const_expr(mistake == "mask_of_one") else 0b11
    if warp == 0:
        state = pipeline.make_pipeline_state(pipeline.PipelineUserType.Producer, STAGES)
        for step in cutlass.range(STEPS):
            pipe.producer_acquire(state)
            cute.copy(
                load,
                from_x[None, step],
                to_x[None, state.index],
                tma_bar_ptr=pipe.producer_get_barrier(state),
                mcast_mask=cutlass.Int16(mask),
            )
            pipe.producer_commit(state)
            state.advance()
        if cutlass.const_expr(mistake != "no_tail"):
            pipe.producer_tail(state)
    else:
        state = pipeline.make_pipeline_state(pipeline.PipelineUserType.Consumer, STAGES)
        total = Int32(0)
        for _ in cutlass.range(STEPS):
            if cutlass.const_expr(mistake != "no_wait"):
                pipe.consumer_wait(state)
            total += sX[0, tidx - 32, state.index]
            cute.arch.fence_view_async_shared()
            pipe.consumer_release(state)
            state.advance()
        out[block, tidx - 32] = total


@cute.jit
def pipelined(x: cute.Tensor, out: cute.Tensor, mistake: cutlass.Constexpr) -> None:
    operation = cpasync.CopyBulkTensorTileG2SMulticastOp()
    stage = cute.make_layout((1, WORDS), stride=(0, 1))
    load, tX = cpasync.make_tiled_tma_atom(operation, x, stage, (1, WORDS), num_multicast=2)
    pipelined_kernel(load, tX, out, mistake).launch(
        grid=(4, 1, 1), block=(96, 1, 1), cluster=(2, 1, 1)
    )


@pytest.mark.parametrize(
    ("mistake", "found"),
    [
        ("", []),
        ("counts_one_block", ["deadlock", "barrier_misuse", "shared_race"]),
        ("mask_of_one", ["deadlock"]),
        ("no_tail", ["exited_peer"]),
        ("no_wait", ["shared_race", "unwritten_shared"]),
    ],
)
def test_a_pipeline_of_multicast_tiles(
    emulation: Emulation, mistake: str, found: list[str]
) -> None:
    x = torch.randint(0, 1000, (STEPS, WORDS), dtype=torch.int32)
    out = torch.zeros(4, WORDS, dtype=torch.int32)
    tensors = from_dlpack(x, assumed_align=16), from_dlpack(out)
    try:
        pipelined(*tensors, mistake)
        codes = [each.code for each in emulation.launches[-1].findings]
    except EmulatorError as error:
        codes = [error.code]
    if found:
        assert set(codes) & set(found), codes
        return
    assert codes == []
    assert torch.equal(out, x.sum(0).to(torch.int32).expand(4, -1))
