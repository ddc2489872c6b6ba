"""Misreadings of the inputs: the operands that a kernel with one mistake would read."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import product

import numpy as np

from nvfp4.problems.nvfp4_gemv.diagnosis.evidence import Cause, Hypothesis, cause, signed
from nvfp4.problems.nvfp4_gemv.diagnosis.inputs import Array, Inputs, Operands, packed_of
from nvfp4.problems.nvfp4_gemv.task import n_padded

_most_blocks = 8
"""The most blocks by which scales are shifted."""

Read = Callable[[Inputs, int, Array], "Operands | None"]
"""The operands of some rows of a batch; None where the kernel would read past the end, or where a
shape does not allow the mistake."""


@dataclass(frozen=True)
class Misreading:
    """A mistake and what it reads."""

    cause: Cause
    read: Read

    def hypothesis(self, inputs: Inputs) -> Hypothesis:
        """Return the hypothesis that follows from this misreading for these inputs."""

        def predict(batch: int, rows: Array) -> Array:
            read = self.read(inputs, batch, rows)
            return np.full(rows.size, np.nan) if read is None else read.exact()

        return Hypothesis(self.cause, predict)


def _with(**changes: Callable[[Array], Array]) -> Read:
    """Return a reader of the right rows with the named operands changed."""

    def read(inputs: Inputs, batch: int, rows: Array) -> Operands:
        operands = inputs.operands(batch, rows)
        changed = {name: change(getattr(operands, name)) for name, change in changes.items()}
        return replace(operands, **changed)

    return read


def _permuted_place(inputs: Inputs, batch: int, rows: Array, rest_m: int) -> Array:
    """Return where the permuted scales of rows stand in their flat storage: int64 [rows, k//16]."""
    i, j = rows[:, None], np.arange(inputs.sfa.shape[2])[None, :]
    tile = (batch * rest_m + i // 128) * (j.size // 4) + j // 4
    return ((tile * 32 + i % 32) * 4 + i % 128 // 32) * 4 + j % 4


def _both(one: Read, other: Read) -> Read:
    """Return a reader that reads sfa as the first does and sfb as the second."""

    def read(inputs: Inputs, batch: int, rows: Array) -> Operands | None:
        a, b = one(inputs, batch, rows), other(inputs, batch, rows)
        return replace(a, sfb=b.sfb) if a and b else None

    return read


def _sfa_plain_as_permuted(inputs: Inputs, batch: int, rows: Array) -> Operands | None:
    m, _, _ = inputs.shape
    if m % 128:
        return None
    place = _permuted_place(inputs, batch, rows, m // 128)
    return replace(inputs.operands(batch, rows), sfa=inputs.sfa.reshape(-1)[place])


def _sfb_plain_as_permuted(inputs: Inputs, batch: int, rows: Array) -> Operands | None:
    place = _permuted_place(inputs, batch, np.zeros(1, np.int64), 1)
    return replace(inputs.operands(batch, rows), sfb=inputs.sfb.reshape(-1)[place[0]])


def _sfa_permuted_as_plain(inputs: Inputs, batch: int, rows: Array) -> Operands | None:
    plain = inputs.sfa_permuted[: inputs.sfa.size].reshape(inputs.sfa.shape)
    return replace(inputs.operands(batch, rows), sfa=plain[batch, rows])


def _sfb_permuted_as_plain(inputs: Inputs, batch: int, rows: Array) -> Operands | None:
    plain = inputs.sfb_permuted.reshape(inputs.sfb.shape)
    return replace(inputs.operands(batch, rows), sfb=plain[batch, 0])


def _scales_of_b(inputs: Inputs, batch: int, rows: Array) -> Operands:
    right = inputs.operands(batch, rows)
    return replace(right, sfa=np.repeat(right.sfb[None], rows.size, 0))


def _halves(elements: int) -> Callable[[Array], Array]:
    """Return a misreading of nibbles: of each `elements`, the low nibbles come first, then the high
    ones."""

    def change(packed: Array) -> Array:
        grouped = packed.reshape(*packed.shape[:-1], -1, elements // 2)
        codes = np.concatenate([grouped & 15, grouped >> 4], axis=-1)
        return packed_of(codes.reshape(*packed.shape[:-1], -1))

    return change


_operand_sets = (("a",), ("b",), ("a", "b"))
_scale_sets = (("sfa",), ("sfb",), ("sfa", "sfb"))


def _halves_of(k: int) -> Iterator[Misreading]:
    for elements in sorted({k, 4, 8, 16, 32, 64, 128, 256}):
        if k % elements:
            continue
        # Two pairs of elements exchange their middle ones, of a as of b with the same result.
        for names in _operand_sets if elements > 4 else (("a",),):
            operand = " and ".join(names) if elements > 4 else "a (or of b)"
            yield Misreading(
                cause("nibbles.halves", operand=operand, elements=elements),
                _with(**dict.fromkeys(names, _halves(elements))),
            )


def _shifted(names: tuple[str, ...], blocks: int, wraps: bool) -> Read:
    """Return a misreading of scales that are shifted by some blocks. wraps: whether they wrap in
    their row, otherwise in the storage."""

    def read(inputs: Inputs, batch: int, rows: Array) -> Operands:
        m, k_blocks = inputs.sfa.shape[1:]
        columns = np.arange(k_blocks) + blocks
        columns = columns % k_blocks if wraps else columns
        changed = {}
        for name in names:
            storage = getattr(inputs, name).reshape(-1)
            row = (batch * m + rows)[:, None] if name == "sfa" else batch * n_padded
            places = row * k_blocks + columns
            inside = (places >= 0) & (places < storage.size)
            changed[name] = storage.take(places, mode="clip") * inside
        return replace(inputs.operands(batch, rows), **changed)

    return read


def _shifts() -> Iterator[Misreading]:
    for names, offset in product(_scale_sets, range(-_most_blocks, _most_blocks + 1)):
        if not offset:
            continue
        which = "all scales" if len(names) > 1 else f"the scales of {names[0][-1]}"
        count = "one block" if abs(offset) == 1 else f"{abs(offset)} blocks"
        what = f"{which} are read {count} {'early' if offset > 0 else 'late'}, block j takes that "
        what += f"of block {signed('j', offset)}"
        why = cause("scales.shift", operand=" and ".join(names), blocks=offset, what=what)
        for wraps in (False, True):
            yield Misreading(why, _shifted(names, offset, wraps))


def misreadings(k: int) -> list[Misreading]:
    """Return every misreading that is tried on its own, for k elements."""
    found = [*_halves_of(k), *_shifts()]
    for code, of_a, of_b, suffix in (
        ("scales.plain_as_permuted", _sfa_plain_as_permuted, _sfb_plain_as_permuted, ""),
        ("scales.permuted_as_plain", _sfa_permuted_as_plain, _sfb_permuted_as_plain, "_permuted"),
    ):
        for names, read in zip(_scale_sets, (of_a, of_b, _both(of_a, of_b)), strict=True):
            operand = " and ".join(f"{name}{suffix}" for name in names)
            found.append(Misreading(cause(code, operand=operand), read))
    found.append(Misreading(cause("scales.other", operand="a", instead="b"), _scales_of_b))
    unsigned = _with(**dict.fromkeys(_scale_sets[-1], lambda scales: scales & 0x7F))
    found.append(Misreading(cause("scales.unsigned"), unsigned))
    swapped = _with(a=lambda packed: packed << 4 | packed >> 4)
    found.append(Misreading(cause("nibbles.swapped", operand="a"), swapped))
    found.append(Misreading(cause("nibbles.high_skipped"), _with(a=lambda packed: packed & 0x0F)))
    found.append(Misreading(cause("nibbles.low_skipped"), _with(a=lambda packed: packed & 0xF0)))
    return found
