"""ld, st and their relatives."""

from __future__ import annotations

from typing import Any

import numpy as np

from nvfp4.emulator.engine import access
from nvfp4.emulator.engine.access import Access
from nvfp4.emulator.engine.action import (
    CLASS_OF_BYTES,
    Action,
    Result,
    Site,
    Source,
    instruction,
    type_bits,
    type_of,
)
from nvfp4.emulator.engine.batch import Batch
from nvfp4.emulator.engine.group import Group
from nvfp4.emulator.ptx.program import LocalAddress, Memory, Operand, SymbolAddress

Array = np.ndarray[Any, Any]

_SPACES = ("global", "shared", "local", "const", "param")
# Orders, scopes and caches: threads run in one order here and there is no cache to hint at.
_HARMLESS = {
    "weak", "volatile", "relaxed", "acquire", "release", "mmio", "unified", "nc",
    "cta", "cluster", "gpu", "sys",
    "ca", "cg", "cs", "lu", "cv", "wb", "wt",
    "v2", "v4", "v8",
}  # fmt: skip
_HINTS = ("L1::", "L2::", "level::")


def space_of(site: Site) -> str:
    """global, shared, local, const, param or generic."""
    for part in site.parts[1:]:
        if part.split("::")[0] in _SPACES:
            return part.split("::")[0]
    return "generic"


def is_hint(part: str) -> bool:
    """Whether a modifier is a cache hint."""
    return part.startswith(_HINTS)


def known_modifiers(site: Site, *more: str) -> None:
    """Refuse what is neither harmless, a hint, a space, a type, nor in `more`."""
    type_name = type_of(site)
    for part in site.parts[1:]:
        space = part.split("::")[0]
        known = part in _HARMLESS or is_hint(part) or part in more
        if not known and space not in _SPACES and part != type_name:
            raise site.unsupported(f"{site.opcode}: modifier .{part} is not emulated")


def access_of(site: Site, memory: Memory, elements: int) -> Access:
    """The access of a site to its memory operand."""
    bits = type_bits(type_of(site))
    if bits > 64 or bits < 8:
        raise site.unsupported(f"{site.opcode}: elements of {bits} bits are not emulated")
    space, counted = space_of(site), True
    if space in ("param", "const"):
        counted = False
        space = "local" if isinstance(memory.base, LocalAddress) else "global"
    elif isinstance(memory.base, SymbolAddress) and space == "generic":
        space = "global"
    return Access(site, space, bits // 8, elements, counted)


@instruction("ld", "ldu")
def ld(site: Site) -> Action:
    """ld{.weak...}{.space}{.hints}{.v2|.v4|.v8}.type d, [a]{, cache-policy}."""
    site.takes(2, 3)
    known_modifiers(site)
    memory = site.memory(1)
    targets = site.items(0)
    what = access_of(site, memory, len(targets))
    cls = CLASS_OF_BYTES[what.size]
    signed = type_of(site).startswith("s")
    results = [Result(target, cls, signed) for target in targets]

    def run(batch: Batch, group: Group, guard: Array | None, address: Array) -> tuple[Array, ...]:
        return tuple(access.load(batch, group, guard, what, address))

    if _is_parameter(memory):
        offset = memory.base.offset + memory.offset  # type: ignore[union-attr]
        return _parameter(site, offset, what, results)
    return Action("load", [Source(memory, "b64")], results, run)


def _is_parameter(memory: Memory) -> bool:
    return isinstance(memory.base, SymbolAddress) and memory.base.space == "param"


def _parameter(site: Site, offset: int, what: Access, results: list[Result]) -> Action:
    """A kernel parameter at a known offset: the same for all threads."""
    dtype = np.dtype(f"u{what.size}")

    def run(batch: Batch, group: Group, guard: Array | None) -> tuple[Array, ...]:
        raw = batch.launch.parameters[offset : offset + what.nbytes]
        values = raw.copy().view(dtype)
        return tuple(values[i : i + 1] for i in range(what.elements))

    return Action("load", [], results, run)


@instruction("st")
def st(site: Site) -> Action:
    """st{.weak...}{.space}{.hints}{.v2|.v4|.v8}.type [a], b{, cache-policy}."""
    site.takes(2, 3)
    known_modifiers(site)
    memory = site.memory(0)
    values: tuple[Operand, ...] = site.items(1)
    what = access_of(site, memory, len(values))
    if space_of(site) == "const" or _is_parameter(memory):
        raise site.unsupported(f"{site.opcode}: {space_of(site)} memory cannot be written")
    cls = CLASS_OF_BYTES[what.size]
    sources = [Source(memory, "b64"), *(Source(value, cls) for value in values)]

    def run(
        batch: Batch, group: Group, guard: Array | None, address: Array, *data: Array
    ) -> tuple[Array, ...]:
        access.store(batch, group, guard, what, address, list(data))
        return ()

    return Action("store", sources, [], run)
