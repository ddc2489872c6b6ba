"""A problem's files as the referee uses them."""

import importlib
import inspect
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

import numpy as np
import torch

from nvfp4.capture import standin
from nvfp4.contract import tree as data_tree
from nvfp4.contract.tree import Tree, build, dtype_of, flatten, packed, same_bytes, tensors_of, view
from nvfp4.records.refusals import is_refusal


class ProblemFailed(Exception):
    """The problem's own code raised, or did not do what it must."""


@contextmanager
def _blaming(what: str) -> Iterator[None]:
    try:
        yield
    except (ProblemFailed, data_tree.TreeError):  # we, not the problem, cannot hand data on
        raise
    except (Exception, SystemExit) as error:
        said = " ".join(f"{type(error).__name__}: {error}".split())[:400]
        how = "needs a GPU:" if standin.is_installed() and is_refusal(error) else "raised"
        raise ProblemFailed(f"{what} {how} {said}") from error


@dataclass
class Inputs:
    """Inputs that were drawn, and what the reference makes of them."""

    tree: Tree
    storages: list[torch.Tensor]
    """Flat uint8 tensors, on the device."""
    outputs: set[int]
    """Storages that the reference writes to, or that nothing has set."""
    expected: Any
    noise: set[int] = field(default_factory=set)
    """Those of the outputs whose contents before a call do not matter."""


class FolderProblem:
    """The problem in the current folder: imports ``reference`` and, if there is one, ``extras``."""

    def __init__(self, on_host: data_tree.OnHost, adopt: data_tree.Adopt) -> None:
        """Import the problem. on_host, adopt: see ``contract.tree``. Raises ProblemFailed."""
        self._on_host, self._adopt = on_host, adopt
        here = os.getcwd()  # which the problem's code may change
        with _blaming("reference.py"):
            self._reference = importlib.import_module("reference")
            file = self._reference.__dict__.get("__file__")
            if file and os.path.dirname(os.path.realpath(file)) != here:
                raise ProblemFailed(f"reference.py cannot be read: {file} took its place")
        self._extras = _optional("extras")
        self.generate = self._needed("generate_input")
        second = getattr(self._extras, "generate_second_input", None)
        self.second: Callable[..., Any] | None = second
        self._kernel = self._needed("ref_kernel")
        self._check = self._needed("check_implementation")
        self._known: tuple[Any, Tree, Inputs] | None = None
        self._matters: set[tuple[str, str]] = set()
        """Storages on whose earlier contents a result has depended, by name and case."""
        self._remember_results()

    def _needed(self, name: str) -> Callable[..., Any]:
        found = getattr(self._reference, name, None)
        if not callable(found):
            raise ProblemFailed(f"reference.py defines no {name}, which judging needs")
        return found

    def refuse(self, arguments: dict[str, Any]) -> None:
        """Raise ProblemFailed for arguments that ``generate_input`` does not take."""
        try:
            inspect.signature(self.generate).bind(**arguments)
        except TypeError as error:
            raise ProblemFailed(f"generate_input: {error}") from None

    @property
    def checks_shape(self) -> bool:
        """Whether the checker is utils' comparison with the reference, which wants its shape."""
        return getattr(self._check, "__module__", "") == "utils"

    def _remember_results(self) -> None:
        """Let a reference that writes to no input return known results, since most checkers call it
        again."""

        def remembered(kernel: Callable[[Any], Any]) -> Callable[[Any], Any]:
            def call(*given: Any, **named: Any) -> Any:
                if self._known and not named and len(given) == 1 and given[0] is self._known[0]:
                    data, tree, inputs = self._known
                    with suppress(data_tree.TreeError):
                        now, storages = flatten(data, on_host=self._on_host)
                        if now == tree and all(map(same_bytes, storages, inputs.storages)):
                            return self._copied(inputs.expected)
                return kernel(*given, **named)  # to write, or for other contents

            return call

        setattr(self._reference, "ref_kernel", remembered(self._kernel))  # noqa: B010
        utils = _optional("utils")
        match: Callable[..., Any] | None = getattr(utils, "match_reference", None)
        if utils is not None and match is not None:

            def match_remembered(
                data: Any, output: Any, reference: Any, *others: Any, **named: Any
            ) -> Any:
                if reference is self._kernel:
                    reference = remembered(reference)
                return match(data, output, reference, *others, **named)

            setattr(utils, "match_reference", match_remembered)  # noqa: B010

    def draw(self, arguments: dict[str, Any], full_range: bool) -> Inputs:
        """Draw inputs and compute the reference's output. Raises ProblemFailed."""
        generate = self.second if full_range and self.second else self.generate
        with _blaming("generate_input"), _noting_unset(self._on_host) as unset:
            data = generate(**arguments)
            tree, storages = flatten(data, on_host=self._on_host)
            names = getattr(self._extras, "names", ())
            if callable(names):
                names = names(**arguments)
            if len({*names}) == len(names) == len(tree.leaves):
                tree = tree.named(names, getattr(self._extras, "dimensions", {}))
            never_set = {
                leaf.storage
                for leaf, tensor in zip(tree.leaves, tensors_of(data), strict=True)
                if any(tensor is each for each in unset)
                and bool((storages[leaf.storage] == _unset_byte).all())
            }
        storages = [each.clone() for each in storages]  # the next draw may use the same memory
        del data
        expected, written, left = self._compute(tree, storages)
        found = Inputs(tree, storages, written | never_set, expected)
        case = str(({**arguments, "seed": full_range}, tree.skeleton))
        doubtful = written - never_set
        found.noise = never_set | {n for n in doubtful if self._is_noise(found, left, n, case)}
        return found

    def _compute(
        self, tree: Tree, storages: list[torch.Tensor]
    ) -> tuple[Any, set[int], list[torch.Tensor]]:
        """Return the reference's result, the storages that it wrote to, and what all hold then."""
        copies = [storage.clone() for storage in storages]
        with _blaming("ref_kernel"):
            result = self._kernel(build(tree, copies, self._adopt))
            result_tree, result_storages = flatten(result, "output", self._on_host)
        pairs = enumerate(zip(storages, copies, strict=True))
        written = {number for number, pair in pairs if not same_bytes(*pair)}
        own = {each.data_ptr(): number for number, each in enumerate(copies) if each.numel()}
        written |= {own[e.data_ptr()] for e in result_storages if e.data_ptr() in own}
        kept = [each.clone() for each in result_storages]
        return build(result_tree, kept, self._adopt), written, copies

    def _is_noise(self, inputs: Inputs, left: list[torch.Tensor], number: int, case: str) -> bool:
        """Return whether the reference's result, and what it left in the storages, is independent
        of a storage's earlier contents, in this draw and in those before with the same plain
        values."""
        key = inputs.tree.names[number], case
        if key not in self._matters:
            spoilt = list(inputs.storages)
            other = torch.full_like(spoilt[number], 0xFF)
            spoilt[number] = other.masked_fill_(spoilt[number] == 0xFF, 0)
            try:
                result, _, others = self._compute(inputs.tree, spoilt)
                both = [*self._flat(result), *others], [*self._flat(inputs.expected), *left]
                if all(same_bytes(*pair) for pair in zip(*both, strict=True)):
                    return True
            except (ProblemFailed, ValueError):
                pass
            self._matters.add(key)
        return False

    def _flat(self, data: Any) -> list[torch.Tensor]:
        return flatten(data, on_host=self._on_host)[1]

    def _copied(self, output: Any) -> Any:
        """Return a copy of an output, for code of the problem's that may write to it."""
        tree, storages = flatten(output, "output", self._on_host)
        return build(tree, [each.clone() for each in storages], self._adopt)

    def expected_tree(self, inputs: Inputs) -> Tree:
        """Return the tree that custom_kernel is to return."""
        return packed(flatten(inputs.expected, "output", self._on_host)[0])

    def least_bytes(self, arguments: dict[str, Any]) -> int:
        """Return the bytes that the extras give; 0 if they give none."""
        count = getattr(self._extras, "least_bytes", None)
        with _blaming("least_bytes of the extras"):
            return int(count(**arguments)) if count else 0

    def figures(self, arguments: dict[str, Any]) -> dict[str, float]:
        """Return the figures that the extras give; none if they give none."""
        figures = getattr(self._extras, "figures", None)
        with _blaming("figures of the extras"):
            return {str(k): float(v) for k, v in figures(**arguments).items()} if figures else {}

    def check(self, inputs: Inputs, output: Any) -> tuple[bool, str]:
        """Return whether the problem's checker accepts an output, and its message. Raises
        ProblemFailed."""
        trees = [flatten(of, "output", self._on_host)[0] for of in (inputs.expected, output)]
        want, got = ({leaf.path: 0 in leaf.shape for leaf in tree.leaves} for tree in trees)
        if any(none and not want.get(path, any(want.values())) for path, none in got.items()):
            return False, "an output has no elements"  # torch broadcasts it, and nothing differs

        def checked(output: Any) -> Any:
            data = build(inputs.tree, [each.clone() for each in inputs.storages], self._adopt)
            if not inputs.outputs:
                self._known = data, flatten(data, on_host=self._on_host)[0], inputs
            with _blaming("check_implementation"):
                return self._check(data, self._copied(output))

        try:
            said = checked(output)
        except ProblemFailed as failed:
            checked(inputs.expected)  # or else the output is why
            return False, str(failed)
        finally:
            self._known = None
        return _verdict(said)

    def never_written(self, output: Any, noise: int = 0xFF) -> str:
        """Return a line that counts the elements of an output that still hold the noise from before
        the call in each byte, and names the first; "" if there are none, or few that may be
        numbers."""
        tree, storages = flatten(output, "output", self._on_host)
        for leaf in tree.leaves:
            is_number = noise == 0xFF and not dtype_of(leaf.dtype).is_floating_point
            if is_number or leaf.itemsize < 2:
                continue  # the noise is a value of these
            flat = view(leaf, storages[leaf.storage]).reshape(-1)
            raw = flat.clone(memory_format=torch.contiguous_format).view(torch.uint8)
            unset = (raw.reshape(-1, leaf.itemsize) == noise).all(dim=1)
            least = max(1, 0 if noise == 0xFF else len(unset) / 8)  # the noise is a number, too
            if unset.sum() >= least:
                first = torch.unravel_index(unset.nonzero()[0, 0], leaf.shape)
                place = [int(each) for each in first]
                return f"never written: {int(unset.sum())} elements, first {leaf.path}{place}"
        return ""

    def rounding_explains(self, inputs: Inputs, output: Any) -> str:
        """Return a sentence if the order of a sum may explain a mismatch, with the distances of
        output and reference from the float64 result; "" if it cannot."""
        wide = build(inputs.tree, [each.clone() for each in inputs.storages], self._adopt)
        trees = [flatten(each, "output", self._on_host)[0] for each in (output, inputs.expected)]
        ours, wanted = (tree.skeleton for tree in trees)
        try:
            exact = tensors_of(self._kernel(_widened(wide)))
            each = zip(tensors_of(output), tensors_of(inputs.expected), exact, strict=True)
            told = [_within_rounding(*those) for those in each]
        except (Exception, SystemExit):
            return ""  # the reference insists on its types, or torch compares none such
        return "" if ours != wanted or None in told else "; ".join(filter(None, told))


def _verdict(said: Any) -> tuple[bool, str]:
    """Return what a checker's result says; text and None as for eval.py, where only text is wrong.
    Raises ProblemFailed if it is no verdict."""
    if said is None or isinstance(said, str):
        return not said, said or ""
    is_pair = isinstance(said, (tuple, list)) and len(said) == 2
    passes, text = said if is_pair else (said, "")
    with suppress(Exception):  # a tensor of several elements is neither true nor false
        if (is_pair or isinstance(said, (bool, np.bool_, torch.Tensor))) and passes in (0, 1):
            return bool(passes), str(text)
    shown = " ".join(repr(said).split())[:100]
    raise ProblemFailed(f"check_implementation returns {shown}, not a bool, a text or (bool, text)")


def _within_rounding(got: torch.Tensor, expected: torch.Tensor, exact: torch.Tensor) -> str | None:
    """Return the distances of output and reference from the exact result; None if an output is off
    by more than rounding and twice the reference's own distance, or that tells nothing."""
    if got.dtype != expected.dtype:
        return None  # it rounds otherwise in every order
    if exact.dtype != torch.float64 or got.shape != exact.shape or not got.is_floating_point():
        return "" if torch.equal(got, expected) else None
    ours, theirs = (got.double() - exact).abs(), (expected.double() - exact).abs()
    if not bool(ours.isfinite().all()) or not bool(theirs.isfinite().all()):
        return None
    step = exact.abs() * torch.finfo(got.dtype).eps + torch.finfo(got.dtype).tiny
    signs_differ = theirs.max() > exact.abs().max() / 8  # as of eigenvectors, or another order
    if signs_differ or bool((ours > step + 2 * theirs.max()).any()):
        return None
    far = float(ours.max()), float(theirs.max())
    return f"at most {far[0]:.3g} from the result in float64, the reference {far[1]:.3g}"


def _widened(data: Any) -> Any:
    if isinstance(data, torch.Tensor):
        wide = data.dtype in (torch.float16, torch.bfloat16, torch.float32)
        return data.double() if wide else data
    if isinstance(data, dict):
        return {key: _widened(each) for key, each in data.items()}
    if isinstance(data, (tuple, list)):
        return type(data)(_widened(each) for each in data)
    return data


def _optional(name: str) -> ModuleType | None:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name != name:
            raise ProblemFailed(f"{name}.py: {error}") from error
        return None
    except Exception as error:
        raise ProblemFailed(f"{name}.py raised {type(error).__name__}: {error}") from error


_unset_byte = 0xA5
"""Finite in every float type. A tensor whose bytes all hold it has not been set since."""


@contextmanager
def _noting_unset(on_host: data_tree.OnHost) -> Iterator[list[torch.Tensor]]:
    """Collect the tensors that the block creates without contents, and mark their memory."""
    found: list[torch.Tensor] = []
    kept = {name: getattr(torch, name) for name in ("empty", "empty_like", "empty_strided")}

    def noting(make: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
        def made(*sizes: Any, **options: Any) -> torch.Tensor:
            found.append(make(*sizes, **options))
            if found[-1].layout == torch.strided and not found[-1].is_meta:
                on_host(found[-1]).untyped_storage().fill_(_unset_byte)
            return found[-1]

        return made

    for name, make in kept.items():
        setattr(torch, name, noting(make))
    try:
        yield found
    finally:
        for name, make in kept.items():
            setattr(torch, name, make)
