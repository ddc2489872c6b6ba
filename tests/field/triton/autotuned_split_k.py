# expect: pass finding=autotune
"""Integer arithmetic on halves, split K by atomics, autotuned with pruning and heuristics."""

import torch
import triton
import triton.language as tl

from task import input_t, output_t


def fitting(configs, named_args, **kwargs):
    """The configurations whose blocks divide a row."""
    k_bytes = named_args["k_bytes"]
    return [config for config in configs if k_bytes % config.kwargs["BLOCK_K"] == 0]


@triton.jit
def e2m1(code):
    """Halves of the value: an index into 0, 1, 2, 3, 4, 6, 8, 12, and the sign."""
    index = (code & 7).to(tl.int32)
    magnitude = tl.where(index < 4, index, (2 + (index & 1)) << (index // 2 - 1))
    return tl.where(code < 8, magnitude, -magnitude)


@triton.autotune(  # <- fault
    configs=[
        triton.Config({"BLOCK_M": 32, "BLOCK_K": 64}, num_warps=4),
        triton.Config({"BLOCK_M": 16, "BLOCK_K": 128}, num_warps=8, num_stages=4),
    ],
    key=["m", "k_bytes"],
    reset_to_zero=["sum_ptr"],
    prune_configs_by={"early_config_prune": fitting},
)
@triton.heuristics({"SPLITS": lambda args: 2 if args["k_bytes"] >= 256 else 1})
@triton.jit
def gemv_kernel(
    a_ptr, b_ptr, sfa_ptr, sfb_ptr, sum_ptr, m, k_bytes,
    SPLITS: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    rows = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    split, batch = tl.program_id(1), tl.program_id(2)
    total = tl.zeros((BLOCK_M,), tl.float32)
    for tile in range(split, k_bytes // BLOCK_K, SPLITS):
        k = tl.max_contiguous(
            tl.multiple_of(tile * BLOCK_K + tl.arange(0, BLOCK_K), BLOCK_K), BLOCK_K
        )
        a = tl.load(a_ptr + (batch * m + rows)[:, None] * k_bytes + k[None, :])
        b = tl.load(b_ptr + batch * 128 * k_bytes + k)
        blocks = tile * (BLOCK_K // 8) + tl.arange(0, BLOCK_K // 8)
        sa = tl.load(sfa_ptr + (batch * m + rows)[:, None] * (k_bytes // 8) + blocks[None, :])
        sb = tl.load(sfb_ptr + batch * 128 * (k_bytes // 8) + blocks)
        fourths = e2m1(a & 15) * e2m1(b & 15)[None, :] + e2m1(a >> 4) * e2m1(b >> 4)[None, :]
        dots = tl.sum(fourths.reshape(BLOCK_M, BLOCK_K // 8, 8), axis=2).to(tl.float32) * 0.25
        total += tl.sum(dots * sa.to(tl.float32) * sb.to(tl.float32)[None, :], axis=1)
    tl.atomic_add(sum_ptr + batch * m + rows, total, sem="relaxed")


def custom_kernel(data: input_t) -> output_t:
    a, b, sfa, sfb, _, _, c = data
    m, k_bytes, l = a.shape
    sums = torch.zeros(l, m, device="cuda")

    def grid(meta):
        return triton.cdiv(m, meta["BLOCK_M"]), meta["SPLITS"], l

    gemv_kernel[grid](a.view(torch.uint8), b.view(torch.uint8), sfa, sfb, sums, m, k_bytes)
    c.copy_(sums.t().reshape(c.shape))
    return c
