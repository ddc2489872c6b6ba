"""mov with packing and special registers, and conversions between address spaces."""

from collections.abc import Sequence

import numpy as np

from nvfp4.emulator.arithmetic.definedness import copied
from nvfp4.emulator.instructions.access_shape import spaces_of
from nvfp4.emulator.instructions.action import Action, Result, Site, Source, class_of, instruction
from nvfp4.emulator.ptx.program import Operand, OperandList
from nvfp4.emulator.ptx.types import REGISTER_DTYPES, Array, type_bits
from nvfp4.emulator.state.batch import Execution
from nvfp4.emulator.state.memory import (
    LOCAL_WINDOW,
    RANK_SHIFT,
    SHARED_WINDOW,
    WINDOW_SHIFT,
    rank_of,
)

Arrays = Sequence[Array]


def _same(value: Array) -> tuple[Array, ...]:
    return (value,)


@instruction("mov")
def mov(site: Site) -> Action:
    """mov.type d, a; mov.b32 d, {a, b}; mov.b64 {a, b}, d."""
    site.takes(2)
    bits = type_bits(site.type())
    target, source = site.operands
    if isinstance(source, OperandList):
        part = f"b{bits // len(source.items)}"
        return Action(
            "move",
            [Source(item, part) for item in source.items],
            [Result(target, f"b{bits}")],
            lambda *parts: (_pack(parts, bits),),
            pure=True,
            rule=lambda values, shadows: (_pack(shadows, bits),),
        )
    if isinstance(target, OperandList):
        count = len(target.items)
        part = f"b{bits // count}"
        return Action(
            "move",
            [Source(source, f"b{bits}")],
            [Result(item, part) for item in target.items],
            lambda whole: _unpack(whole, count, bits // count),
            pure=True,
            rule=lambda values, shadows: _unpack(shadows[0], count, bits // count),
        )
    cls = class_of(site)
    return Action(
        "move", [Source(source, cls)], [Result(target, cls)], _same, pure=True, rule=copied
    )


def _pack(parts: Sequence[Array], bits: int) -> Array:
    """The first part is the lowest."""
    dtype = REGISTER_DTYPES[f"b{bits}"]
    width = dtype.type(bits // len(parts))
    total = parts[-1].astype(dtype)
    for part in reversed(parts[:-1]):
        total = (total << width) | part
    return total


def _unpack(whole: Array, count: int, width: int) -> tuple[Array, ...]:
    dtype = REGISTER_DTYPES[f"b{width}"]
    step = whole.dtype.type(width)
    parts = [whole.astype(dtype)]
    for i in range(1, count):
        parts.append((whole >> step * whole.dtype.type(i)).astype(dtype))
    return tuple(parts)


_WINDOWS = {"shared": SHARED_WINDOW, "local": LOCAL_WINDOW, "global": 0, "const": 0, "param": 0}


def _space(site: Site) -> str:
    """The state space that the opcode names."""
    if not spaces_of(site):
        raise site.unsupported(f"{site.opcode} names no state space")
    return spaces_of(site)[0]


@instruction("cvta")
def cvta(site: Site) -> Action:
    """Between an address in a state space and a generic one."""
    site.takes(2)
    window = np.uint64(_WINDOWS[_space(site)])
    cls = class_of(site)
    target, source = site.operands
    if cls != "b64":
        raise site.unsupported(f"{site.opcode}: generic addresses have 64 bits")
    low = np.uint64((1 << WINDOW_SHIFT) - 1)
    to_space = "to" in site.parts
    if _space(site) in ("param", "const") and not to_space:
        return _generic_of_small(_space(site), target, source)

    def run(address: Array) -> tuple[Array, ...]:
        if window == 0:
            return (address,)
        return (address & low if to_space else address | window,)

    result = Result(target, "b64")
    return Action("integer", [Source(source, "b64")], [result], run, pure=True, rule=copied)


def _generic_of_small(space: str, target: Operand, source: Operand) -> Action:
    def run(ex: Execution, address: Array) -> tuple[Array, ...]:
        return (ex.batch.launch.whole_address(space, address),)

    def shadow(ex: Execution, values: Arrays, shadows: Arrays) -> tuple[Array, ...]:
        return (shadows[0],)

    result = Result(target, "b64")
    return Action("integer", [Source(source, "b64")], [result], run, shadow=shadow)


@instruction("isspacep")
def isspacep(site: Site) -> Action:
    """Whether a generic address points into a state space."""
    site.takes(2)
    space = _space(site)
    number = _WINDOWS[space] >> WINDOW_SHIFT

    of_cta = space == "shared" and "shared::cluster" not in site.parts

    def run(ex: Execution, address: Array) -> tuple[Array, ...]:
        there = (address >> np.uint64(WINDOW_SHIFT)) == number
        if of_cta and ex.batch.cluster_size > 1:
            group = ex.group
            own = rank_of(group.spread(address)) == group.cta % ex.batch.cluster_size
            return (group.fold(group.spread(there) & own),)
        return (there,)

    if space in ("const", "param"):
        raise site.unsupported(f"{site.opcode}: only global, shared and local are told apart")
    target, source = site.operands
    return Action("integer", [Source(source, "b64")], [Result(target, "pred")], run)


@instruction("mapa")
def mapa(site: Site) -> Action:
    """mapa{.shared::cluster}.type d, a, b: the address of the same variable in the CTA of the
    cluster that has rank b."""
    site.takes(3)
    cls = class_of(site)
    target, address, rank = site.operands

    def run(value: Array, number: Array) -> tuple[Array, ...]:
        kind = value.dtype.type
        ranks = np.minimum(number, 255).astype(value.dtype) << kind(RANK_SHIFT)
        return (value & ~kind(0xFF << RANK_SHIFT) | ranks,)

    sources = [Source(address, cls), Source(rank, "b32")]
    return Action("integer", sources, [Result(target, cls)], run, pure=True)


@instruction("getctarank")
def getctarank(site: Site) -> Action:
    """Rank in the cluster of the CTA that owns a shared address."""
    site.takes(2)
    cls = class_of(site)
    target, source = site.operands

    def run(address: Array) -> tuple[Array, ...]:
        return (rank_of(address).astype(np.uint32),)

    return Action("integer", [Source(source, cls)], [Result(target, "b32")], run, pure=True)
