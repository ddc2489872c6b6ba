"""Which memory torch's operators are about to read, as the stand-in tells."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
import torch

from nvfp4.capture import host_access, standin

pytestmark = pytest.mark.skipif(torch.cuda.is_available(), reason="there is a real CUDA device")

Operation = Callable[[torch.Tensor, torch.Tensor], object]


@contextmanager
def owned_by(reads: Callable[[int, int], None]) -> Iterator[None]:
    """Tell a function what is read."""
    owner = host_access.Owner()
    owner.reads = reads  # type: ignore[assignment,method-assign]
    host_access.belongs_to(owner)
    yield
    host_access.belongs_to(None)


@pytest.fixture
def seen() -> Iterator[list[int]]:
    """Addresses of what was read."""
    found: list[int] = []
    with standin.install(), owned_by(lambda address, nbytes: found.append(address)):
        yield found


READS: list[Operation] = [
    lambda x, y: y.copy_(x),
    lambda x, y: x.cpu(),
    lambda x, y: x[0].item(),
    lambda x, y: torch.cat([y, x]),
    lambda x, y: torch.add(x, 1, out=y),
    lambda x, y: x.add_(1),
    lambda x, y: torch._foreach_add([x, y], 1),
]
OVERWRITES: list[Operation] = [
    lambda x, y: x.zero_(),
    lambda x, y: x.fill_(3),
    lambda x, y: x.copy_(y),
    lambda x, y: torch.add(y, 1, out=x),
    lambda x, y: x.view(2, 2).t().unsqueeze(0),
]


@pytest.mark.parametrize(
    ("operation", "reads"),
    [*((each, True) for each in READS), *((each, False) for each in OVERWRITES)],
)
def test_an_operator_tells_what_it_reads_and_not_what_it_overwrites(
    seen: list[int], operation: Operation, reads: bool
) -> None:
    x, y = torch.ones(4, device="cuda"), torch.ones(4, device="cuda")
    seen.clear()
    operation(x, y)
    assert (x.data_ptr() in seen) is reads


def test_what_the_hook_raises_the_operator_does() -> None:
    def refuse(address: int, nbytes: int) -> None:
        raise LookupError("not this one")

    with standin.install(), owned_by(refuse):
        x = torch.empty(4, device="cuda")
        with pytest.raises(LookupError, match="not this one"):
            x.sum()
