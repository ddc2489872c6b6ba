"""Submissions written for a B200, called as on one, checked against the exact reference."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

pytest.importorskip("cutlass")

import cutlass
import cutlass.cute as cute
import torch
from cutlass.cute.runtime import from_dlpack, make_ptr

from nvfp4 import emulation
from nvfp4.capture import standin
from nvfp4.contract.reference import generate_full_range_input, ref_kernel

pytestmark = pytest.mark.skipif(torch.cuda.is_available(), reason="there is a real CUDA device")

M, K, L = 128, 256, 2


@pytest.fixture(scope="module")
def host_data() -> Any:
    return generate_full_range_input(M, K, L, seed=7)


@pytest.fixture(autouse=True)
def on_a_b200(host_data: Any) -> Iterator[None]:
    with standin.install(), emulation.install():
        yield


def judged(custom_kernel: Callable[[Any], torch.Tensor], host_data: Any) -> None:
    """Calls as the judge does; raises AssertionError for a wrong output."""
    host = tuple(tensor.clone() for tensor in host_data[:-1])
    c = torch.full((L, M, 1), float("nan"), dtype=torch.float16).permute(1, 2, 0)
    data = tuple(standin.adopt(tensor) for tensor in (*host, c))
    assert all(tensor.is_cuda and type(tensor) is torch.Tensor for tensor in data)
    output = custom_kernel(data)
    assert type(output) is torch.Tensor
    assert output.device == torch.device("cuda", 0)
    expected = ref_kernel(host_data)
    torch.testing.assert_close(standin.host_view(output), expected, rtol=1e-3, atol=1e-3)


def to_blocked(scales: torch.Tensor) -> torch.Tensor:
    rows, columns = scales.shape
    row_blocks, column_blocks = math.ceil(rows / 128), math.ceil(columns / 4)
    assert (rows, columns) == (row_blocks * 128, column_blocks * 4)
    blocks = scales.view(row_blocks, 128, column_blocks, 4).permute(0, 2, 1, 3)
    return blocks.reshape(-1, 4, 32, 4).transpose(1, 2).reshape(-1, 32, 16).flatten()


def scaled_mm_of_each_batch(data: Any) -> torch.Tensor:
    a, b, sfa, sfb, _, _, c = data
    for i in range(c.shape[2]):
        scale_a = to_blocked(sfa[:, :, i].cpu()).cuda()
        scale_b = to_blocked(sfb[:, :, i].cpu()).to("cuda", non_blocking=True)
        product = torch._scaled_mm(
            a[:, :, i], b[:, :, i].transpose(0, 1), scale_a, scale_b, out_dtype=torch.float16
        )
        c[:, 0, i] = product[:, 0]
    return c


def scaled_mm_of_the_permuted_scales(data: Any) -> torch.Tensor:
    a, b, _, _, sfa, sfb, c = data
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for i in range(c.shape[-1]):
            scales = [s[..., i].permute(2, 4, 0, 1, 3).contiguous().view(-1) for s in (sfa, sfb)]
            c[..., 0, i].copy_(
                torch._scaled_mm(a[..., i], b[..., i].t(), *scales, out_dtype=torch.float32)[:, 0]
            )
    torch.cuda.current_stream().wait_stream(stream)
    torch.cuda.synchronize()
    return c


class Dequantize(torch.nn.Module):
    """A table in a buffer, as a module for all of torch would have it."""

    table: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        half = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0]
        self.register_buffer("table", torch.tensor(half + [-value for value in half]))

    def forward(self, packed: torch.Tensor, scales: torch.Tensor) -> torch.Tensor:
        codes = packed.view(torch.uint8)
        values = torch.stack([self.table[(codes & 0xF).long()], self.table[(codes >> 4).long()]], 2)
        values = values.flatten(1, 2) if values.dim() == 4 else values
        return values * scales.to(self.table.dtype).repeat_interleave(16, dim=1)


def dequantized_by_a_module(data: Any) -> torch.Tensor:
    a, b, sfa, sfb, _, _, _c = data
    if torch.cuda.get_device_capability(a.device) < (10, 0):
        raise RuntimeError("needs Blackwell")
    assert torch.cuda.get_device_properties(a.device).multi_processor_count > 100
    dequantize = torch.compile(Dequantize().double().cuda().eval())
    with torch.inference_mode(), torch.cuda.device(a.device):
        rows = dequantize(a, sfa)
        vector = dequantize(b[:1], sfb[:1])
        return torch.einsum("mkl,nkl->mnl", rows, vector).to(torch.float16)


def batches_in_threads(data: Any) -> torch.Tensor:
    a, b, sfa, sfb, _, _, c = data
    dequantize = Dequantize().double().to(c.device)
    out = torch.empty_strided(c.shape, c.stride(), dtype=c.dtype, device="cuda")

    def one(i: int) -> None:
        one_batch = slice(i, i + 1)
        rows = dequantize(a[..., one_batch], sfa[..., one_batch])[..., 0]
        vector = dequantize(b[:1, :, one_batch], sfb[:1, :, one_batch])[0, :, 0]
        torch.mv(rows, vector, out=(result := torch.empty(0, device="cuda", dtype=rows.dtype)))
        out[:, 0, i] = result

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(one, range(c.shape[2])))
    return out


@cute.kernel
def row_kernel(
    a: cute.Tensor, b: cute.Tensor, sfa: cute.Tensor, sfb: cute.Tensor, c: cute.Tensor
) -> None:
    """A thread a row: FP4 and FP8 tensors over pointers, as the contest's template has them."""
    row, _, _ = cute.arch.thread_idx()
    _, _, batch = cute.arch.block_idx()
    total = cutlass.Float32(0.0)
    for j in cutlass.range(cute.size(sfa, mode=[1])):
        blocks = [cute.local_tile(t[r, None, batch], (16,), (j,)) for t, r in ((a, row), (b, 0))]
        va, vb = (block.load().to(cutlass.Float32) for block in blocks)
        product = (va * vb).reduce(cute.ReductionOp.ADD, cutlass.Float32(0.0), 0)
        total += (
            product * sfa[row, j, batch].to(cutlass.Float32) * sfb[0, j, batch].to(cutlass.Float32)
        )
    c[row, 0, batch] = total.to(cutlass.Float16)


@cute.jit
def launch_rows(
    a: cute.Pointer,
    b: cute.Pointer,
    sfa: cute.Tensor,
    sfb: cute.Tensor,
    c: cute.Tensor,
    m: cutlass.Constexpr,
    k: cutlass.Constexpr,
    l: cutlass.Constexpr,
) -> None:
    rows = cute.make_tensor(a, cute.make_layout((m, k, l), stride=(k, 1, m * k)))
    vectors = cute.make_tensor(b, cute.make_layout((128, k, l), stride=(k, 1, 128 * k)))
    row_kernel(rows, vectors, sfa, sfb, c).launch(grid=(1, 1, l), block=(m, 1, 1))


def cute_dsl(data: Any) -> torch.Tensor:
    a, b, sfa, sfb, _, _, c = data
    m, _, l = c.shape
    k = a.shape[1] * 2
    pointers = [
        make_ptr(cutlass.Float4E2M1FN, t.data_ptr(), cute.AddressSpace.gmem, assumed_align=16)
        for t in (a, b)
    ]
    scales = [from_dlpack(s) for s in (sfa, sfb)]
    output = from_dlpack(c, assumed_align=16).mark_layout_dynamic(leading_dim=0)
    launch_rows(*pointers, *scales, output, m, k, l)
    return c


@pytest.mark.parametrize(
    "custom_kernel",
    [
        scaled_mm_of_each_batch,
        scaled_mm_of_the_permuted_scales,
        dequantized_by_a_module,
        batches_in_threads,
        cute_dsl,
    ],
    ids=lambda kernel: kernel.__name__,
)
def test_a_submission_for_a_b200_runs_unchanged(
    custom_kernel: Callable[[Any], torch.Tensor], host_data: Any
) -> None:
    judged(custom_kernel, host_data)


def test_a_wrong_submission_is_wrong_here_too(host_data: Any) -> None:
    def wrong(data: Any) -> torch.Tensor:
        output = scaled_mm_of_each_batch(data)
        output[3, 0, 1] += 1
        return output

    with pytest.raises(AssertionError, match="not close"):
        judged(wrong, host_data)
