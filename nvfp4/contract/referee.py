"""The judge's interface to a problem, which draws inputs and checks outputs."""

from collections.abc import Sequence
from dataclasses import field
from typing import Any, Protocol

import torch

from nvfp4.contract.tree import Tree, build, same_bytes
from nvfp4.records.base import Record
from nvfp4.records.cases import Case


class Published(Record):
    """Figures of a case that a problem knows without drawing its inputs."""

    least_bytes: int = 0
    """Bytes that any kernel has to move; 0 if unknown."""
    figures: dict[str, float] = field(default_factory=dict)
    """Times in microseconds: sol_us, b200_floor_us; elements, which instructions are counted by."""


class CasePlan(Record):
    """Facts about a case that are known before a call."""

    inputs: Tree
    outputs: frozenset[int]
    """Storages of the inputs that a submission may write to."""
    expected: Tree
    """The tree that custom_kernel returns, packed."""
    room_bytes: int
    """Limit on the bytes of an output, in steps of 256 bytes for each tensor."""
    least_bytes: int = 0
    """See ``Published``."""
    checks_shape: bool = True
    """Whether the problem's checker refuses any other structure or shape."""
    noise: frozenset[int] = frozenset()
    """Those of `outputs` whose contents do not matter: they hold noise before a call."""
    strict_inputs: bool = False
    """Whether a submission that writes to another input fails; otherwise it is only reported."""


class Drawn(Record):
    """Inputs of a call."""

    tree: Tree
    storages: list[torch.Tensor]
    """Flat uint8 tensors on the device where the judge computes."""
    contents: Any = None
    """Data of the referee about these inputs."""
    plan: CasePlan | None = None
    """The plan of this draw, if values, shapes and sizes may depend on the seed."""
    repeats: bool = False
    """Whether the case has the same inputs for every seed."""

    @property
    def data(self) -> Any:
        """Inputs as custom_kernel gets them."""
        return build(self.tree, self.storages)


class Output(Record):
    """The data that custom_kernel returned."""

    tree: Tree
    """The structure of the output, packed."""
    storages: list[torch.Tensor]
    noise: int = 0xFF
    """The byte that its memory was filled with before the call."""

    @property
    def data(self) -> Any:
        """The tensors."""
        return build(self.tree, self.storages)

    def same_bits(self, other: "Output") -> bool:
        """Return whether two outputs are the same, NaN included."""
        return self.tree == other.tree and all(map(same_bytes, self.storages, other.storages))


class Checked(Record):
    """Whether an output is right."""

    passed: bool
    message: str = ""
    wrong: int = 0
    elements: int = 0
    error_share: float | None = None
    """The largest error over the allowed one, if the problem tells."""
    causes: list[dict[str, Any]] = field(default_factory=list)
    """Likely causes, for programs; see ``records.failures.Failure``."""
    unclear: bool = False
    """Whether the order of a sum may explain the difference."""


class Referee(Protocol):
    """The referee of one problem. Every method may raise the judge's CaseFailed."""

    draws_full_range: bool
    """Whether there is a second kind of inputs."""
    repeatable: bool
    """Whether the same inputs must give the same bits in another process."""
    withholds: bool
    """Whether ``withhold`` knows a part of the inputs on which every result depends."""

    def prepare(self, cases: Sequence[Case]) -> None:
        """Get ready for these cases, whose inputs are not drawn yet."""

    def refuse(self, case: Case) -> None:
        """Raise CaseError for a case outside the problem."""

    def published(self, case: Case) -> Published:
        """Return the figures of a case that was prepared."""

    def plan(self, case: Case) -> CasePlan:
        """Return the facts about a case that are known before a call."""

    def draw(self, case: Case, seed: int) -> Drawn:
        """Return the inputs of a case as the contest draws them for a seed."""

    def redraw(self, case: Case, seed: int) -> Drawn:
        """Return inputs of the same kind that are cheap to draw and to check."""

    def expect(self, drawn: Drawn) -> Drawn:
        """Return inputs with the results that `check` needs, if they can be computed in advance."""

    def check(self, drawn: Drawn, output: Output, explain: bool = False) -> Checked:
        """Return whether an output is right. explain: look for the likely cause if it is not."""

    def is_right(self, drawn: Drawn, output: Output) -> bool:
        """Return whether the part of an output that is cheap to check is right."""

    def withhold(
        self, plan: CasePlan, storages: list[torch.Tensor]
    ) -> list[tuple[torch.Tensor, torch.Tensor]]:
        """Spoil a part of the inputs in these buffers that every result depends on; returns where
        each piece belongs and what it was. Empty where no such part is known."""

    def close(self) -> None:
        """End the processes that it has started."""
