"""mov with packing and special registers, and conversions between address spaces."""

from collections.abc import Sequence

import numpy as np

from nvfp4.emulator.arithmetic.definedness import copied
from nvfp4.emulator.instructions.access_shape import spaces_of
from nvfp4.emulator.instructions.action import Action, Result, Site, Source, class_of, instruction
from nvfp4.emulator.ptx.syntax import OperandList
from nvfp4.emulator.ptx.types import REGISTER_DTYPES, Array, split, type_bits
from nvfp4.emulator.state import memory
from nvfp4.emulator.state.batch import Execution


@instruction("mov", operands="_ _")
def mov(site: Site) -> Action:
    """mov.type d, a; mov.b32 d, {a, b}; mov.b64 {a, b}, d."""
    bits = type_bits(site.type())
    target, source = site.operands
    whole = f"b{bits}"
    if isinstance(source, OperandList):
        parts = [Source(item, f"b{bits // len(source.items)}") for item in source.items]
        return Action(
            "move", parts, [Result(target, whole)],
            lambda *parts: (_pack(parts, bits),), pure=True,
            rule=lambda values, shadows: (_pack(shadows, bits),),
        )  # fmt: skip
    if isinstance(target, OperandList):
        width = bits // len(target.items)
        return Action(
            "move", [Source(source, whole)], [Result(item, f"b{width}") for item in target.items],
            lambda value: _unpack(value, bits, width), pure=True,
            rule=lambda values, shadows: _unpack(shadows[0], bits, width),
        )  # fmt: skip
    cls, sources = class_of(site), [Source(source, class_of(site))]
    return Action(
        "move", sources, [Result(target, cls)], lambda value: (value,), pure=True, rule=copied
    )


def _pack(parts: Sequence[Array], bits: int) -> Array:
    """Pack the parts into one value, the first part lowest."""
    dtype = REGISTER_DTYPES[f"b{bits}"]
    width = dtype.type(bits // len(parts))
    total = parts[-1].astype(dtype)
    for part in reversed(parts[:-1]):
        total = (total << width) | part
    return total


def _unpack(whole: Array, bits: int, width: int) -> tuple[Array, ...]:
    """Split a value into parts, the first part from the lowest bits."""
    parts = split(whole, whole.shape, REGISTER_DTYPES[f"b{width}"])
    parts = parts.reshape(*whole.shape, bits // width)
    return tuple(parts[..., number].copy() for number in range(bits // width))


_WINDOWS = dict.fromkeys(("global", "const", "param"), 0)
_WINDOWS |= {"shared": memory.SHARED_WINDOW, "local": memory.LOCAL_WINDOW}


def _space(site: Site) -> str:
    """The state space that the opcode names."""
    if not spaces_of(site):
        raise site.unsupported(f"{site.opcode} names no state space")
    return spaces_of(site)[0]


@instruction("cvta", operands="=b64 b64")
def cvta(site: Site) -> Action:
    """Convert an address in a state space to a generic address, or back."""
    space, to_space = _space(site), "to" in site.parts
    window = np.uint64(_WINDOWS[space])
    if class_of(site) != "b64":
        raise site.unsupported(f"{site.opcode}: generic addresses have 64 bits")
    low = np.uint64((1 << memory.WINDOW_SHIFT) - 1)

    def run(address: Array) -> tuple[Array, ...]:
        if window == 0:
            return (address,)
        return (address & low if to_space else address | window,)

    def of_small(ex: Execution, address: Array) -> tuple[Array, ...]:
        return (ex.batch.launch.whole_address(space, address),)

    if space in ("param", "const") and not to_space:
        return site.action("integer", of_small, shadow=lambda ex, values, shadows: (shadows[0],))
    return site.action("integer", run, pure=True, rule=copied)


@instruction("isspacep", operands="=pred b64")
def isspacep(site: Site) -> Action:
    """Whether a generic address points into a state space."""
    space = _space(site)
    if space in ("const", "param"):
        raise site.unsupported(f"{site.opcode}: only global, shared and local are told apart")
    number = _WINDOWS[space] >> memory.WINDOW_SHIFT
    of_cta = space == "shared" and "shared::cluster" not in site.parts

    def run(ex: Execution, address: Array) -> tuple[Array, ...]:
        there = (address >> np.uint64(memory.WINDOW_SHIFT)) == number
        if of_cta and ex.batch.cluster_size > 1:
            group = ex.group
            own = memory.rank_of(group.spread(address)) == group.cta % ex.batch.cluster_size
            return (group.fold(group.spread(there) & own),)
        return (there,)

    return site.action("integer", run)


@instruction("mapa", operands="=type type b32")
def mapa(site: Site) -> Action:
    """mapa{.shared::cluster}.type d, a, b: the address of the same variable in the CTA of the
    cluster that has rank b."""

    def run(value: Array, number: Array) -> tuple[Array, ...]:
        kind = value.dtype.type
        ranks = np.minimum(number, 255).astype(value.dtype) << kind(memory.RANK_SHIFT)
        return (value & ~kind(0xFF << memory.RANK_SHIFT) | ranks,)

    return site.action("integer", run, pure=True)


@instruction("getctarank", operands="=b32 type")
def getctarank(site: Site) -> Action:
    """Rank in the cluster of the CTA that owns a shared address."""
    return site.action("integer", lambda a: (memory.rank_of(a).astype(np.uint32),), pure=True)
