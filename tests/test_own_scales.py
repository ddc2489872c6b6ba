"""Contents for many processes: each has scales of its own, and the exact result of them."""

from __future__ import annotations

import pytest
import torch

from nvfp4.contract import reference
from nvfp4.judge.compare.timed_worker import with_own_scales


@pytest.mark.parametrize("shape", [(128, 256, 1), (130, 320, 3)])
@pytest.mark.parametrize("full", [False, True])
def test_each_has_scales_of_its_own_and_the_result_of_the_reference(
    shape: tuple[int, int, int], full: bool
) -> None:
    make = reference.generate_full_range_input if full else reference.generate_input
    data = make(*shape, 5)
    pristine = [each.view(torch.uint8).clone() for each in data[:6]]
    found = with_own_scales(data, 4)
    assert len({bytes(each[3].view(torch.uint8)[0].flatten().tolist()) for each, _ in found}) == 4
    for each, expected in found:
        assert torch.equal(expected, reference.ref_kernel(each))
        assert expected.stride() == data[6].stride()
        assert [part.stride() for part in each] == [part.stride() for part in data]
        assert torch.equal(each[3].view(torch.uint8)[1:], data[3].view(torch.uint8)[1:])
        blocks = range(shape[1] // 16)
        plain, permuted = (each[n].view(torch.uint8) for n in (3, 5))
        assert all(torch.equal(plain[0, j], permuted[0, 0, 0, j % 4, j // 4]) for j in blocks)
    assert all(
        torch.equal(part.view(torch.uint8), kept)
        for part, kept in zip(data, pristine, strict=False)
    )
