"""The referee of NVFP4 GEMV. It is our own code, so that it runs in the judge's process."""

from collections.abc import Sequence
from functools import cached_property

import torch

from nvfp4.contract.referee import CasePlan, Checked, Drawn, Output, Published
from nvfp4.contract.tree import Leaf, Storage, Tree, name_of, packed, room_for
from nvfp4.problems.nvfp4_gemv import contents, extras, reference
from nvfp4.problems.nvfp4_gemv.diagnosis.wrong_outputs import diagnose
from nvfp4.problems.nvfp4_gemv.extras import names
from nvfp4.problems.nvfp4_gemv.gpu_reference import expected_output
from nvfp4.problems.nvfp4_gemv.layout import Layout, dimensions, layouts
from nvfp4.problems.nvfp4_gemv.task import TestSpec, input_t, k_multiple, output_dtypes
from nvfp4.records.base import Record
from nvfp4.records.cases import Case, CaseError

largest = 2**31 - 1
"""Limit on m, k and l, as CUDA allows; sizes stay in 64 bits."""


def shape_of(case: Case) -> tuple[int, int, int]:
    """m, k and l of a case. Raises CaseError for a case outside the problem."""
    wanted = set(TestSpec.__annotations__)
    if set(case.arguments) != wanted:
        raise CaseError(f"a case must name {', '.join(sorted(wanted))}")
    if not all(type(value) is int for value in case.arguments.values()):
        raise CaseError("every value must be a whole number")
    m, k, l = (int(case.arguments[name]) for name in ("m", "k", "l"))
    for holds, rule in (
        (m >= 1 and l >= 1, "m and l must be at least 1"),
        (k >= 1 and k % k_multiple == 0, f"k must be a positive multiple of {k_multiple}"),
        (max(m, k, l) <= largest, f"m, k and l must be at most {largest}"),
        (0 <= case.seed < 2**63, "seed must lie between 0 and 2**63 - 1"),
    ):
        if not holds:
            raise CaseError(rule)
    return m, k, l


def input_tree(m: int, k: int, l: int) -> Tree:
    """Return the seven tensors, each in a storage of its own."""
    of = layouts(m, k, l)
    leaves = [_leaf(number, name, layout) for number, (name, layout) in enumerate(of.items())]
    storages = [Storage(layout.nbytes) for layout in of.values()]
    return Tree({"tuple": [{"leaf": number} for number in range(len(names))]}, leaves, storages)


def _leaf(number: int, name: str, layout: Layout) -> Leaf:
    stored = torch.empty(layout.storage_shape, device="meta").permute(layout.order)
    words = [list(pair) for pair in dimensions[name]]
    shape, strides = list(stored.shape), list(stored.stride())
    return Leaf(name, number, name_of(layout.dtype), shape, strides, 0, words)


class _Known(Record, frozen=False):
    """Inputs in the reference's form, with the results computed so far."""

    data: input_t
    quick: contents.Contents | None = None

    @cached_property
    def result(self) -> torch.Tensor:
        """The reference's output."""
        return expected_output(self.data)


class Gemv:
    """See ``contract.referee.Referee``."""

    draws_full_range = True
    repeatable = True
    withholds = True

    def prepare(self, cases: Sequence[Case]) -> None:
        """Do nothing, as everything is available."""

    def refuse(self, case: Case) -> None:
        shape_of(case)

    def published(self, case: Case) -> Published:
        shape = shape_of(case)
        return Published(extras.least_bytes(*shape), extras.figures(*shape))

    def plan(self, case: Case) -> CasePlan:
        m, k, l = shape_of(case)
        inputs = input_tree(m, k, l)
        c = len(names) - 1
        return CasePlan(
            inputs,
            frozenset([c]),
            packed(Tree({"leaf": 0}, [inputs.leaves[c]], [inputs.storages[c]])),
            room_for([m * l * max(dtype.itemsize for dtype in output_dtypes)]),
            extras.least_bytes(m, k, l),
            strict_inputs=True,
        )

    def draw(self, case: Case, seed: int) -> Drawn:
        shape = shape_of(case)
        full, contest = reference.generate_full_range_input, reference.generate_input
        return self._drawn(shape, _Known((full if case.full_range else contest)(*shape, seed)))

    def redraw(self, case: Case, seed: int) -> Drawn:
        if reference.default_device().type == "cuda":  # draws as the contest does, in no time
            return self.draw(case, seed)
        shape = shape_of(case)
        quick = contents.draw(shape, case.full_range, seed)
        return self._drawn(shape, _Known(quick.data, quick))

    def _drawn(self, shape: tuple[int, int, int], known: _Known) -> Drawn:
        pairs = zip(layouts(*shape).values(), known.data, strict=True)
        return Drawn(input_tree(*shape), [layout.flat(tensor) for layout, tensor in pairs], known)

    def expect(self, drawn: Drawn) -> Drawn:
        assert drawn.contents.result is not None
        return drawn

    def check(self, drawn: Drawn, output: Output, explain: bool = False) -> Checked:
        known: _Known = drawn.contents
        got, expected = output.data, known.result
        passed, message = reference.check_implementation(known.data, got, expected)
        if passed:
            return Checked(True, error_share=reference.error_share(got, expected))
        if not isinstance(got, torch.Tensor) or got.shape != expected.shape:
            return Checked(False, message)
        wrong = int((~reference.close_enough(got, expected)).sum())
        causes = []
        if explain:
            why = diagnose(known.data, got, expected)
            message, causes = f"{message}\n{why.text}", why.causes()
        return Checked(False, message, wrong, got.numel(), causes=causes)

    def is_right(self, drawn: Drawn, output: Output) -> bool:
        known: _Known = drawn.contents
        quick, got = known.quick, output.data
        if quick is None or got.shape != known.data[6].shape:
            return self.check(drawn, output).passed
        return quick.has_right(got)

    def withhold(
        self, plan: CasePlan, storages: list[torch.Tensor]
    ) -> list[tuple[torch.Tensor, torch.Tensor]]:
        """Spoil row 0 of every b, on which every result depends."""
        number = names.index("b")
        rows, k_packed, l = plan.inputs.leaves[number].shape
        first = storages[number].view(l, rows, k_packed)[:, 0]
        kept = first.clone()
        first.fill_(0xFF)
        return list(zip(first.unbind(), kept.unbind(), strict=True))

    def close(self) -> None:
        """Do nothing: this referee has started no process."""
