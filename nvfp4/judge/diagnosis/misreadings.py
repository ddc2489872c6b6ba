"""Misreadings of the inputs: what a kernel with one mistake would read in place of the operands."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np
import torch

from nvfp4.contract.task import e2m1_values
from nvfp4.judge.diagnosis.causes import Cause, cause
from nvfp4.judge.diagnosis.evidence import Hypothesis
from nvfp4.judge.diagnosis.inputs import Array, Inputs, Operands, e4m3_values, packed_of

Read = Callable[[Inputs, int, Array], "Operands | None"]
"""The operands of some rows of a batch; None where the kernel would read past the end, or where a
shape does not allow the mistake."""


@dataclass(frozen=True)
class Misreading:
    """A mistake and what it reads."""

    cause: Cause
    read: Read

    def hypothesis(self, inputs: Inputs) -> Hypothesis:
        """What follows from it for these inputs."""

        def predict(batch: int, rows: Array) -> Array:
            read = self.read(inputs, batch, rows)
            return np.full(rows.size, np.nan) if read is None else read.exact()

        return Hypothesis(self.cause, predict)


@dataclass(frozen=True)
class WithTables(Operands):
    """Operands whose codes stand for other values than those of the formats.

    fp4: by operand (a, b), float64 [16]; scales: by operand (sfa, sfb), float64 [256].
    """

    fp4: dict[str, Array]
    scales: dict[str, Array]

    def exact(self) -> Array:
        """The sums of blocks in float32, which holds all but whole numbers' largest exactly."""
        a, b = (self._fp4(name) for name in ("a", "b"))
        tables = {"sfa": e4m3_values, "sfb": e4m3_values, **self.scales}
        sfa, sfb = tables["sfa"][self.sfa], tables["sfb"][self.sfb]
        with np.errstate(over="ignore", invalid="ignore"):
            blocks = np.einsum("rjk,jk->rj", a.reshape(a.shape[0], -1, 16), b.reshape(-1, 16))
            return (blocks * sfa * sfb).sum(axis=1)

    def _fp4(self, name: str) -> Array:
        """Values of a or b: float32 [..., k]."""
        codes = np.arange(256)
        table = self.fp4.get(name, np.array(e2m1_values)).astype(np.float32)
        pairs = np.stack([table[codes & 15], table[codes >> 4]], axis=1)
        packed = getattr(self, name)
        return pairs[packed].reshape(*packed.shape[:-1], -1)


def _with(**changes: Callable[[Array], Array]) -> Read:
    """Changes named operands of the right rows."""

    def read(inputs: Inputs, batch: int, rows: Array) -> Operands:
        operands = inputs.operands(batch, rows)
        changed = {name: change(getattr(operands, name)) for name, change in changes.items()}
        return replace(operands, **changed)

    return read


def _tables(fp4: dict[str, Array] | None = None, scales: dict[str, Array] | None = None) -> Read:
    def read(inputs: Inputs, batch: int, rows: Array) -> Operands:
        operands = inputs.operands(batch, rows)
        return WithTables(**vars(operands), fp4=fp4 or {}, scales=scales or {})

    return read


def permuted_place(inputs: Inputs, batch: int, rows: Array, rest_m: int) -> Array:
    """Where the permuted scales of rows stand in their flat storage: int64 [rows, k//16]."""
    i, j = rows[:, None], np.arange(inputs.sfa.shape[2])[None, :]
    tile = (batch * rest_m + i // 128) * (j.size // 4) + j // 4
    return ((tile * 32 + i % 32) * 4 + i % 128 // 32) * 4 + j % 4


Index = Callable[[int, Array, Array, int, int], Array]
"""From batch, row [rows, 1], block [1, k//16], rest_m and rest_k a place in permuted storage."""


def _swapped_tiles(batch: int, i: Array, j: Array, rest_m: int, rest_k: int) -> Array:
    tile = (batch * rest_k + j // 4) * rest_m + i // 128
    return ((tile * 32 + i % 32) * 4 + i % 128 // 32) * 4 + j % 4


def _without_the_four(batch: int, i: Array, j: Array, rest_m: int, rest_k: int) -> Array:
    tile = (batch * rest_m + i // 128) * rest_k + j // 4
    return (tile * 128 + i % 128) * 4 + j % 4


def _inner_swapped(batch: int, i: Array, j: Array, rest_m: int, rest_k: int) -> Array:
    tile = (batch * rest_m + i // 128) * rest_k + j // 4
    return ((tile * 32 + i % 32) * 4 + j % 4) * 4 + i % 128 // 32


wrong_indices: dict[str, Index] = {
    "tiles are taken at [k tile, m tile], they stand at [m tile, k tile]": _swapped_tiles,
    "rows of a tile are taken one after the other, they stand at [i % 32, i // 32]": (
        _without_the_four
    ),
    "the last two indices are swapped: row i // 32, then block j % 4": _inner_swapped,
}


def _permuted_by(index: Index, operand: str) -> Read:
    """Reads permuted scales at other places of their storage."""

    def read(inputs: Inputs, batch: int, rows: Array) -> Operands | None:
        m, _, _ = inputs.shape
        storage, i, rest_m = inputs.sfb_permuted, np.zeros((1, 1), np.int64), 1
        if operand == "sfa":
            storage, i, rest_m = inputs.sfa_permuted, rows[:, None], -(-m // 128)
        k_blocks = inputs.sfa.shape[2]
        place = index(batch, i, np.arange(k_blocks)[None, :], rest_m, k_blocks // 4)
        if place.max() >= storage.size:
            return None
        scales = storage[place]
        right = inputs.operands(batch, rows)
        return replace(right, **{operand: scales if operand == "sfa" else scales[0]})

    return read


def _both(one: Read, other: Read) -> Read:
    """sfa as the one reads it and sfb as the other does."""

    def read(inputs: Inputs, batch: int, rows: Array) -> Operands | None:
        a, b = one(inputs, batch, rows), other(inputs, batch, rows)
        return replace(a, sfb=b.sfb) if a and b else None

    return read


def _sfa_plain_as_permuted(inputs: Inputs, batch: int, rows: Array) -> Operands | None:
    m, _, _ = inputs.shape
    if m % 128:
        return None
    place = permuted_place(inputs, batch, rows, m // 128)
    return replace(inputs.operands(batch, rows), sfa=inputs.sfa.reshape(-1)[place])


def _sfb_plain_as_permuted(inputs: Inputs, batch: int, rows: Array) -> Operands | None:
    place = permuted_place(inputs, batch, np.zeros(1, np.int64), 1)
    return replace(inputs.operands(batch, rows), sfb=inputs.sfb.reshape(-1)[place[0]])


def _sfa_permuted_as_plain(inputs: Inputs, batch: int, rows: Array) -> Operands | None:
    plain = inputs.sfa_permuted[: inputs.sfa.size].reshape(inputs.sfa.shape)
    return replace(inputs.operands(batch, rows), sfa=plain[batch, rows])


def _sfb_permuted_as_plain(inputs: Inputs, batch: int, rows: Array) -> Operands | None:
    plain = inputs.sfb_permuted.reshape(inputs.sfb.shape)
    return replace(inputs.operands(batch, rows), sfb=plain[batch, 0])


def _unpadded(*names: str) -> Read:
    """Batch b of b (or sfb) read b rows into its storage, as if it had one row and not 128."""

    def read(inputs: Inputs, batch: int, rows: Array) -> Operands:
        flat = {name: getattr(inputs, name) for name in names}
        changed = {name: each.reshape(-1, each.shape[2])[batch] for name, each in flat.items()}
        return replace(inputs.operands(batch, rows), **changed)

    return read


def _first_batch(*names: str) -> Read:
    def read(inputs: Inputs, batch: int, rows: Array) -> Operands:
        first = inputs.operands(0, rows)
        changed = {name: getattr(first, name) for name in names}
        return replace(inputs.operands(batch, rows), **changed)

    return read


def other_row(row: int, *names: str) -> Read:
    """Another row of b, sfb or both than row 0."""

    def read(inputs: Inputs, batch: int, rows: Array) -> Operands:
        changed = {name: getattr(inputs, name)[batch, row] for name in names}
        return replace(inputs.operands(batch, rows), **changed)

    return read


def _scales_of_the_other(operand: str) -> Read:
    def read(inputs: Inputs, batch: int, rows: Array) -> Operands:
        right = inputs.operands(batch, rows)
        if operand == "sfb":
            # Products are as before if both are exchanged: this one is scaled by sfa twice.
            return WithTables(
                right.a, right.b, right.sfa, np.full_like(right.sfb, 0x38), {}, _squared("sfa")
            )
        return WithTables(
            right.a, right.b, np.full_like(right.sfa, 0x38), right.sfb, {}, _squared("sfb")
        )

    return read


def _squared(*names: str) -> dict[str, Array]:
    return dict.fromkeys(names, e4m3_values**2)


def _swap_nibbles(packed: Array) -> Array:
    return (packed << 4) | (packed >> 4)


def _halves(elements: int) -> Callable[[Array], Array]:
    """Low nibbles as the first half of each so many elements, high nibbles as the second."""

    def change(packed: Array) -> Array:
        nbytes = elements // 2
        grouped = packed.reshape(*packed.shape[:-1], -1, nbytes)
        codes = np.concatenate([grouped & 15, grouped >> 4], axis=-1)
        return packed_of(codes.reshape(*packed.shape[:-1], -1))

    return change


def _coarse(blocks: int) -> Callable[[Array], Array]:
    return lambda scales: scales[..., np.arange(scales.shape[-1]) // blocks]


def _magnitude(scales: Array) -> Array:
    return scales & 0x7F


def _flushed(scales: Array) -> Array:
    return np.where((scales & 0x78) == 0, 0, scales).astype(np.uint8)


def _ones(scales: Array) -> Array:
    return np.full_like(scales, 0x38)


def _torch_values(dtype: torch.dtype) -> Array:
    return torch.arange(256, dtype=torch.uint8).view(dtype).double().numpy()


def _scale_formats() -> dict[str, Array]:
    codes = np.arange(256)
    return {
        "E5M2": _torch_values(torch.float8_e5m2),
        "UE8M0": np.ldexp(1.0, codes - 127),
        "E4M3 with bias 8": _torch_values(torch.float8_e4m3fnuz),
        "a whole number": codes.astype(float),
        "a signed whole number": np.where(codes < 128, codes, codes - 256).astype(float),
    }


def _fp4_formats() -> dict[str, Array]:
    codes = np.arange(16)
    values = np.array(e2m1_values)
    return {
        "whole numbers 0 to 15": codes.astype(float),
        "two's complement": np.where(codes < 8, codes, codes - 16).astype(float),
        "sign and whole number": np.where(codes < 8, codes, 8.0 - codes),
        "E2M1 without subnormals": np.where(np.abs(values) == 0.5, 0.0, values),
    }


_operand_sets = (("a",), ("b",), ("a", "b"))
_scale_sets = (("sfa",), ("sfb",), ("sfa", "sfb"))


def _and(names: tuple[str, ...]) -> str:
    return " and ".join(names)


def _layout_misreadings() -> Iterator[Misreading]:
    plain = (_sfa_plain_as_permuted, _sfb_plain_as_permuted)
    permuted = (_sfa_permuted_as_plain, _sfb_permuted_as_plain)
    for code, (of_a, of_b), suffix in (
        ("scales.plain_as_permuted", plain, ""),
        ("scales.permuted_as_plain", permuted, "_permuted"),
    ):
        for names, read in zip(_scale_sets, (of_a, of_b, _both(of_a, of_b)), strict=True):
            operand = _and(tuple(f"{name}{suffix}" for name in names))
            yield Misreading(cause(code, operand=operand), read)
    for mistake, index in wrong_indices.items():
        reads = [_permuted_by(index, name) for name in ("sfa", "sfb")]
        for names, read in zip(_scale_sets, (*reads, _both(*reads)), strict=True):
            if "sfb" in names and index is not _inner_swapped:
                continue  # row 0 of the only tile of rows stands where it must
            operand = _and(tuple(f"{name}_permuted" for name in names))
            yield Misreading(cause("scales.permuted_index", operand=operand, mistake=mistake), read)


def _batch_misreadings() -> Iterator[Misreading]:
    for names in (("b",), ("sfb",), ("b", "sfb")):
        yield Misreading(cause("batches.unpadded", operand=_and(names)), _unpadded(*names))
    for names in (("a",), ("b",), ("sfa",), ("sfb",), ("a", "sfa"), ("b", "sfb"), ("sfa", "sfb")):
        yield Misreading(cause("batches.first", operand=_and(names)), _first_batch(*names))


def _nibble_misreadings() -> Iterator[Misreading]:
    yield Misreading(cause("nibbles.swapped", operand="a"), _with(a=_swap_nibbles))
    low, high = (lambda packed: packed & 0x0F), (lambda packed: packed & 0xF0)
    yield Misreading(cause("nibbles.high_skipped"), _with(a=low))
    yield Misreading(cause("nibbles.low_skipped"), _with(a=high))
    for names in _operand_sets:
        changes = {name: (lambda packed: packed & 0x77) for name in names}
        yield Misreading(cause("fp4.sign", operand=_and(names)), _with(**changes))
        for form, table in _fp4_formats().items():
            tables = _tables(fp4=dict.fromkeys(names, table))
            yield Misreading(cause("fp4.format", operand=_and(names), format=form), tables)


def _halves_of(k: int) -> Iterator[Misreading]:
    for elements in sorted({k, 4, 8, 16, 32, 64, 128, 256}):
        if k % elements:
            continue
        # Two pairs of elements exchange their middle ones, of a as of b with the same result.
        sets = _operand_sets if elements > 4 else (("a",),)
        for names in sets:
            operand = _and(names) if elements > 4 else "a (or of b)"
            yield Misreading(
                cause("nibbles.halves", operand=operand, elements=elements),
                _with(**dict.fromkeys(names, _halves(elements))),
            )


def _scale_misreadings() -> Iterator[Misreading]:
    operands = ("the scales of a are", "the scales of b are", "all scales are")
    for operand, names in zip(operands, _scale_sets, strict=True):
        missing = cause("scales.missing", operand=operand)
        yield Misreading(missing, _with(**dict.fromkeys(names, _ones)))
        twice = cause("scales.twice", operand=operand)
        yield Misreading(twice, _tables(scales=_squared(*names)))
        for blocks in (2, 4, 8):
            coarse = cause("scales.coarse", operand=_and(names), elements=16 * blocks)
            yield Misreading(coarse, _with(**dict.fromkeys(names, _coarse(blocks))))
        for form, table in _scale_formats().items():
            tables = _tables(scales=dict.fromkeys(names, table))
            yield Misreading(cause("scales.format", operand=_and(names), format=form), tables)
        sign = cause("scales.sign", operand=_and(names))
        yield Misreading(sign, _with(**dict.fromkeys(names, _magnitude)))
    other = cause("scales.other", operand="a", instead="b")
    yield Misreading(other, _scales_of_the_other("sfa"))
    yield Misreading(cause("scales.other", operand="b", instead="a"), _scales_of_the_other("sfb"))
    yield Misreading(cause("scales.subnormals"), _with(sfa=_flushed, sfb=_flushed))


def misreadings(k: int) -> list[Misreading]:
    """Every misreading that is tried on its own, for k elements."""
    kinds = (_layout_misreadings, _batch_misreadings, _nibble_misreadings, _scale_misreadings)
    return [each for kind in kinds for each in kind()] + list(_halves_of(k))
