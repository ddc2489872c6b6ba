"""What a user would run instead of the submission, each as a call without arguments."""

import importlib.util
from collections.abc import Callable
from typing import Any

import torch

Call = Callable[[], torch.Tensor]

e2m1_magnitudes = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)


def dequantise(codes: torch.Tensor, scales: torch.Tensor) -> torch.Tensor:
    """FP4 codes [..., k // 2] uint8 and E4M3 scales [..., k // 16] as float16 [..., k]."""
    table = torch.tensor(
        [*e2m1_magnitudes, *(-value for value in e2m1_magnitudes)],
        device=codes.device,
        dtype=torch.float16,
    )
    pairs = torch.stack([codes & 15, codes >> 4], -1).flatten(-2).int()
    blocks = table[pairs].unflatten(-1, (-1, 16)) * scales.to(torch.float16).unsqueeze(-1)
    return blocks.flatten(-2)


def stored(data: Any) -> list[torch.Tensor]:
    """a, b, sfa, sfb as they lie in memory, b and sfb cut to row 0: [l, rows, ...]."""
    a, b, sfa, sfb, _, _, _ = data
    a, b = (x.permute(2, 0, 1).view(torch.uint8) for x in (a, b))
    sfa, sfb = (x.permute(2, 0, 1) for x in (sfa, sfb))
    return [a, b[:, :1], sfa, sfb[:, :1]]


def torch_dequantise_bmm(data: Any) -> Call:
    """Dequantise by table in every call, then a batched product."""
    a, b, sfa, sfb = stored(data)

    def call() -> torch.Tensor:
        return torch.bmm(dequantise(a, sfa), dequantise(b, sfb).transpose(1, 2)).permute(1, 2, 0)

    return call


def cublas_fp16(data: Any) -> Call:
    """Weights dequantised to float16 beforehand: four times the bytes, through cuBLAS."""
    a, b, sfa, sfb = stored(data)
    weights, vector = dequantise(a, sfa), dequantise(b, sfb).transpose(1, 2).contiguous()
    out = torch.empty(a.shape[0], a.shape[1], 1, device=a.device, dtype=torch.float16)

    def call() -> torch.Tensor:
        torch.bmm(weights, vector, out=out)
        return out.permute(1, 2, 0)

    return call


def bitsandbytes_4bit(data: Any) -> Call | None:
    """bitsandbytes' 4-bit GEMV (FP4 codes of its own, a float32 scale for 64 weights), batch after
    batch, on as many weights; None where it is not installed.
    """
    if importlib.util.find_spec("bitsandbytes") is None:
        return None
    import bitsandbytes.functional as functional

    m, k_packed, l = data[0].shape
    k = 2 * k_packed
    batches = []
    for _ in range(l):
        weights = torch.randn(m, k, device="cuda", dtype=torch.float16)
        quantised, state = functional.quantize_4bit(weights, blocksize=64, quant_type="fp4")
        vector = torch.randn(1, 1, k, device="cuda", dtype=torch.float16)
        batches.append((vector, quantised.t(), state))

    def call() -> torch.Tensor:
        out = [functional.gemv_4bit(x, weights, state=state) for x, weights, state in batches]
        return torch.stack(out)

    return call


def triton_kernel(data: Any, time_us: Callable[[Call], float]) -> tuple[Call, str] | None:
    """Our Triton kernel with the fastest of its tilings, and that tiling; None without Triton."""
    if importlib.util.find_spec("triton") is None:
        return None
    from benchmarks import triton_gemv

    calls = {tiling: triton_gemv.prepare(data, tiling) for tiling in triton_gemv.tilings}
    best = min(calls, key=lambda tiling: time_us(calls[tiling]))
    return calls[best], f"{best.rows} rows, {best.words} words, {best.warps} warps"
