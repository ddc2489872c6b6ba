"""Why an address lies outside its tensor, in the kernel's own terms."""

import math
from collections.abc import Iterator

from nvfp4.emulator.instructions.action import LaneSite
from nvfp4.records.launch import Buffer, View

_AXES = "xyz"


def overrun(at: LaneSite, buffer: Buffer, offset: int) -> tuple[str, str | None]:
    """(the index that is too large and what made it so, a hint), both empty where it is not known.

    offset: of the first byte outside, from the buffer's start.
    """
    view = buffer.view
    index = view.index(offset) if view else None
    if view is None or index is None or not buffer.name.isidentifier():
        return "", None
    index, formulas = _as_meant(at, view, index)
    wrong = [d for d, size in enumerate(view.shape) if not 0 <= index[d] < size]
    if not wrong:
        return "", None
    d = wrong[0]
    what, extent = view.dimensions[d] if view.dimensions else (f"index {d}", "")
    size = view.shape[d]
    has = f"{extent} = {size}" if extent and extent != str(size) else f"{size}"
    plural = _plural(what)
    said = f"{buffer.name}[{', '.join(map(str, index))}], "
    said += f"but {buffer.name} has {has} {plural}"
    if index[d] < 0:
        return said, None
    short = extent if extent and extent != str(size) else str(size)
    for formula, cover, axis in formulas:
        needed = -(-size // cover)
        grid = at.batch.launch.grid[_AXES.index(axis)]
        said += f"; {what} = {formula}"
        by = f"{short} / {cover}" if cover > 1 else short
        if grid > needed:
            rest = "" if size % cover == 0 else ", rounded up,"
            said += f"; grid.{axis} is {grid}, {by}{rest} = {needed}"
            hint = f"launch {by} CTAs in {axis}, or return where {what} >= {short}"
        else:
            hint = f"{by} is no whole number: return where {what} >= {short}"
            if size % cover == 0:
                hint = f"guard the access with {what} < {short}"
        return said, hint
    return said, f"guard the access with {what} < {short}"


Formula = tuple[str, int, str]
"""How an index came about, in words; how many indices a CTA covers; the axis of the grid."""


def _as_meant(
    at: LaneSite, view: View, index: tuple[int, ...]
) -> tuple[tuple[int, ...], list[Formula]]:
    """The index as the kernel probably meant it, and how it came about if that is clear.

    A batch too many is the same place as a row past the last one of the last batch. The latter is
    more common; it is clear where another of the CTA's numbers is that of the batch.
    """
    order = view.outermost_first()
    cta = at.batch.coordinates(at.lane)[0]
    if len(order) > 1 and view.dimensions and view.dimensions[order[0]][0] == "batch":
        first, second = order[:2]
        if index[first] != view.shape[first]:
            return index, []
        carried = list(index)
        carried[first] -= 1
        carried[second] += view.shape[second]
        formulas = [
            (formula, cover, axis)
            for formula, cover, axis in _formulas(at, carried[second])
            if carried[first] in _others(cta, axis)
        ]
        if not formulas and index[first] in cta[1:]:
            axis = _AXES[cta.index(index[first], 1)]
            return index, [(f"CTA {axis}", 1, axis)]
        return tuple(carried), formulas
    wrong = [d for d, size in enumerate(view.shape) if not 0 <= index[d] < size]
    return index, list(_formulas(at, index[wrong[0]])) if wrong else []


def _others(cta: tuple[int, int, int], axis: str) -> tuple[int, ...]:
    return tuple(number for name, number in zip(_AXES, cta, strict=True) if name != axis)


def _formulas(at: LaneSite, value: int) -> Iterator[Formula]:
    """Usual ways in which a CTA and a thread make an index, those that make this one."""
    cta, thread = at.batch.coordinates(at.lane)
    block = at.batch.launch.block
    warps = math.ceil(math.prod(block) / 32)
    warp = at.lane % at.batch.grid.threads // 32
    for i, axis in enumerate(_AXES):
        if block[0] > 1 and value == cta[i] * block[0] + thread[0]:
            yield f"{cta[i]} * {block[0]} + {thread[0]} (CTA {axis}, thread x)", block[0], axis
        if block[1] > 1 and value == cta[i] * block[1] + thread[1]:
            yield f"{cta[i]} * {block[1]} + {thread[1]} (CTA {axis}, thread y)", block[1], axis
        if warps > 1 and value == cta[i] * warps + warp:
            yield f"{cta[i]} * {warps} + {warp} (CTA {axis}, warp)", warps, axis
        if value == cta[i]:
            yield f"CTA {axis}", 1, axis


def _plural(what: str) -> str:
    if what == "batch":
        return "batches"
    head, of, rest = what.partition(" of ")
    return f"{head}s{of}{rest}"
