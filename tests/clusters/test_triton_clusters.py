"""Triton's num_ctas and launch_pdl: right kernels, and wrong ones."""

from collections.abc import Iterator

import pytest
import torch
import triton
import triton.language as tl

from nvfp4 import emulation
from nvfp4.emulation import Emulation
from nvfp4.emulator.errors import EarlyAccess


@pytest.fixture(scope="module")
def emulated(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Emulation]:
    if torch.cuda.is_available():
        pytest.skip("there is a real CUDA device")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRITON_CACHE_DIR", str(tmp_path_factory.mktemp("triton")))
        with emulation.install_stand_in() as installed:
            yield installed


@triton.jit
def add_the_sum(x, y, out, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(y + at) + tl.sum(tl.load(x + at), axis=0))


@pytest.mark.parametrize("ctas", [1, 2, 4])
def test_a_sum_over_the_blocks_of_a_cluster(emulated: Emulation, ctas: int) -> None:
    x = torch.arange(1024, device="cuda", dtype=torch.float32)
    y, out = torch.ones_like(x), torch.empty_like(x)
    add_the_sum[(2,)](x, y, out, BLOCK=512, num_ctas=ctas)
    assert emulated.launches[-1].grid == (2 * ctas, 1, 1)
    assert emulated.launches[-1].findings == []
    expected = y.reshape(2, -1) + x.reshape(2, -1).sum(1, keepdim=True)
    assert torch.equal(out.reshape(2, -1), expected)


@triton.jit
def write(x):  # type: ignore[no-untyped-def]
    tl.extra.cuda.gdc_launch_dependents()
    tl.store(x + tl.arange(0, 32), tl.arange(0, 32) + 5)


@triton.jit
def read(x, y, WAITS: tl.constexpr):  # type: ignore[no-untyped-def]
    if WAITS:
        tl.extra.cuda.gdc_wait()
    tl.store(y + tl.arange(0, 32), tl.load(x + tl.arange(0, 32)) + 1)


@pytest.mark.parametrize("waits", [True, False])
def test_a_kernel_that_begins_early(emulated: Emulation, waits: bool) -> None:
    x = torch.zeros(32, device="cuda", dtype=torch.int32)
    y = torch.zeros_like(x)
    write[(1,)](x)
    if not waits:
        with pytest.raises(EarlyAccess, match="which write, launched before this"):
            read[(1,)](x, y, False, launch_pdl=True)
        return
    read[(1,)](x, y, True, launch_pdl=True)
    assert emulated.launches[-1].findings == []
    assert y.tolist() == list(range(6, 38))


@triton.jit
def multiply(a, b, c, K, N: tl.constexpr, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    rows = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    columns, k = tl.arange(0, N), tl.arange(0, 64)
    sums = tl.zeros((BLOCK, N), tl.float32)
    for start in range(0, K, 64):
        left = tl.load(a + rows[:, None] * K + start + k[None, :])
        right = tl.load(b + columns[None, :] * K + (start + k)[:, None])
        sums = tl.dot(left, right, sums)
    tl.store(c + rows[:, None] * N + columns[None, :], sums)


def test_a_product_on_the_tensor_cores_of_a_cluster(emulated: Emulation) -> None:
    torch.manual_seed(1)
    a, b = (torch.randint(-3, 4, (rows, 128), device="cuda").half() for rows in (256, 64))
    c = torch.empty(256, 64, device="cuda")
    multiply[(1,)](a, b, c, 128, N=64, BLOCK=256, num_ctas=2)
    assert emulated.launches[-1].tensor_instructions > 0
    assert emulated.launches[-1].findings == []
    assert torch.equal(c, a.float() @ b.float().T)


@triton.jit
def multiply_fp4(a, sa, b, sb, c, K: tl.constexpr, N: tl.constexpr):  # type: ignore[no-untyped-def]
    rows, columns = tl.arange(0, 128), tl.arange(0, N)
    pairs, blocks = tl.arange(0, K // 2), tl.arange(0, K // 16)
    left = tl.load(a + rows[:, None] * (K // 2) + pairs[None, :])
    right = tl.load(b + columns[:, None] * (K // 2) + pairs[None, :])
    scales = tl.load(sa + rows[:, None] * (K // 16) + blocks[None, :])
    others = tl.load(sb + columns[:, None] * (K // 16) + blocks[None, :])
    sums = tl.dot_scaled(left, scales, "e2m1", right.T, others, "e2m1")
    tl.store(c + rows[:, None] * N + columns[None, :], sums)


def test_a_product_of_fp4_with_block_scales(emulated: Emulation) -> None:
    torch.manual_seed(1)
    table = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6])
    table = torch.cat((table, -table))
    codes = [torch.randint(0, 256, (rows, 64), dtype=torch.uint8) for rows in (128, 32)]
    scales = [torch.randint(1, 4, (rows, 8)).to(torch.float8_e4m3fn) for rows in (128, 32)]
    c = torch.empty(128, 32, device="cuda")
    operands = (each.cuda() for pair in zip(codes, scales, strict=True) for each in pair)
    multiply_fp4[(1,)](*operands, c, K=128, N=32)
    values = [
        table[torch.stack((each & 15, each >> 4), -1).reshape(len(each), -1).long()]
        * scale.float().repeat_interleave(16, 1)
        for each, scale in zip(codes, scales, strict=True)
    ]
    assert emulated.launches[-1].tensor_instructions > 0
    assert torch.equal(c.cpu(), values[0] @ values[1].T)
