"""Triton's num_ctas and launch_pdl: right kernels, and wrong ones."""

from __future__ import annotations

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
    total = tl.sum(tl.load(x + at), axis=0)
    tl.store(out + at, tl.load(y + at) + total)


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
