"""The reference's kernel for a GPU: run by the emulator, and on a GPU where there is one."""

import pytest
import torch

from nvfp4 import emulator
from nvfp4.contract import reference
from nvfp4.contract.layout import layouts
from nvfp4.judge import gpu_reference
from nvfp4.judge.gpu_reference import PTX, WARPS, expected_output, launch_of, tables

NAMES = ("a", "b", "sfa", "sfb")


def emulated(m: int, k: int, l: int, data: tuple[torch.Tensor, ...]) -> torch.Tensor:
    of = layouts(m, k, l)
    out = torch.full((l, m, 1), 7.0, dtype=torch.float16)
    inputs = [of[name].flat(each) for name, each in zip(NAMES, data, strict=False)]
    storages = [*inputs, *tables(torch.device("cpu")), out]
    grid, block, parameters = launch_of(storages, (m, k, l))
    named = zip((*NAMES, "dots", "scales", "c"), storages, strict=True)
    report = emulator.run_ptx(
        PTX,
        "gemv",
        grid,
        block,
        parameters,
        buffers=[(name, each.data_ptr(), each.nbytes) for name, each in named],
    )
    assert report.findings == []
    return out.permute(1, 2, 0)


@pytest.mark.parametrize(("m", "k", "l"), [(1, 64, 1), (WARPS + 3, 576, 2), (20, 1088, 3)])
@pytest.mark.parametrize("full", [False, True], ids=["contest", "full-range"])
def test_the_kernel_has_the_reference_s_bits(m: int, k: int, l: int, full: bool) -> None:
    draw = reference.generate_full_range_input if full else reference.generate_input
    data = tuple(each.cpu() for each in draw(m, k, l, 5))
    assert torch.equal(emulated(m, k, l, data), reference.ref_kernel(data))


def test_every_pair_of_bytes_is_multiplied_as_the_reference_does() -> None:
    m, k = 256, 4096
    data = [each.cpu() for each in reference.generate_input(m, k, 1, 5)]
    every = torch.arange(256, dtype=torch.uint8)
    data[0].view(torch.uint8)[:, :, 0] = every[:, None]
    data[1].view(torch.uint8)[0, :, 0] = every.repeat(k // 2 // 256)
    for number in (2, 3):
        finite = every[(every & 127) != 127].roll(number)
        data[number].view(torch.uint8)[0, : len(finite), 0] = finite
    assert torch.equal(emulated(m, k, 1, tuple(data)), reference.ref_kernel(tuple(data)))


@pytest.mark.gpu
@pytest.mark.parametrize("full", [False, True], ids=["contest", "full-range"])
@pytest.mark.parametrize(("m", "k", "l"), [(1, 64, 1), (4096, 7168, 8), (2432, 4608, 2)])
def test_a_gpu_has_the_reference_s_bits(m: int, k: int, l: int, full: bool) -> None:
    draw = reference.generate_full_range_input if full else reference.generate_input
    for seed in (1, 2):
        data = draw(m, k, l, seed)
        assert torch.equal(expected_output(data), reference.ref_kernel(data))
    assert gpu_reference._agrees[data[0].shape]


@pytest.mark.gpu
def test_a_shape_for_which_they_differ_has_the_reference(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu_reference, "_agrees", {})
    monkeypatch.setattr(gpu_reference, "_by_kernel", lambda kernel, data: data[6])
    data = reference.generate_input(128, 256, 1, 1)
    for _ in range(2):
        assert torch.equal(expected_output(data), reference.ref_kernel(data))
