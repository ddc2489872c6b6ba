"""Replacements for instructions that a target lacks; `narrow_floats` has the conversions."""

from dataclasses import replace

from nvfp4.emulator.ptx.syntax import Name
from nvfp4.emulator.ptx.types import type_bytes
from nvfp4.retarget.sequence import Sequence, rule, shown
from nvfp4.retarget.targets import Target

# Packed arithmetic, which later architectures do in one instruction.

_ONE, _MINUS_ONE, _MINUS_ZERO = 0x3F80, 0xBF80, 0x8000  # in bf16


@rule("add", "sub", "mul", "fma")
def two_singles(s: Sequence, target: Target) -> bool:
    """Replace an operation on f32x2 by one for each half, rounded the same way."""
    if target.has(100, (8, 6)) or not s.has("f32x2"):
        return False
    opcode = s.node.opcode.replace("f32x2", "f32")
    halves = [s.halves(index, "b32") for index in range(1, len(s.operands))]
    low, high = (s.value(opcode, *sources) for sources in zip(*halves, strict=True))
    return s.perform("mov.b64", s.operand(0), f"{{{low}, {high}}}")


@rule("add", "sub", "fma")
def mixed(s: Sequence, target: Target) -> bool:
    """Widen factors in f16 or bf16 of an f32 operation, which is exact, so that it rounds once."""
    if target.has(100, (8, 6)) or len(s.types) != 2 or s.types[0] != "f32":
        return False
    narrow, last = s.types[1], len(s.operands) - 1
    sources = [s.value(f"cvt.f32.{narrow}", s.held(index, "b16")) for index in range(1, last)]
    return s.perform(s.without(narrow), s.operand(0), *sources, s.operand(last))


@rule("min", "max")
def three_sources(s: Sequence, target: Target) -> bool:
    """Replace min and max of three sources by two operations."""
    if target.has(100, (8, 8)) or len(s.operands) != 4:
        return False
    sources = [s.operand(index) for index in (1, 2, 3)]
    if s.has("abs"):
        sources = [s.value("abs.f32", source) for source in sources]
    opcode = s.without("abs")
    return s.perform(opcode, s.operand(0), s.value(opcode, *sources[:2]), sources[2])


@rule("add", "sub", "mul")
def bf16_by_fma(s: Sequence, target: Target) -> bool:
    """Before sm_90 bf16 has only fma: a * b + -0, a * 1 + b, b * -1 + a."""
    if target.number >= 90 or not s.has("bf16", "bf16x2") or len(s.types) != 1:
        return False
    kind, lanes = ("b32", 2) if s.has("bf16x2") else ("b16", 1)
    a, b = s.held(1, kind), s.held(2, kind)
    constant = {"add": _ONE, "sub": _MINUS_ONE, "mul": _MINUS_ZERO}[s.parts[0]]
    other = s.value(f"mov.{kind}", constant | constant << 16 if lanes == 2 else constant, kind=kind)
    sources = {"add": (a, other, b), "sub": (b, other, a), "mul": (a, b, other)}[s.parts[0]]
    return s.perform(f"fma.rn.{s.types[0]}", s.operand(0), *sources)


# Loads and stores that are wider than the target's.

_HALF_OF = {"v8": "v4", "v4": "v2"}


@rule("ld", "st")
def wide_access(s: Sequence, target: Target) -> bool:
    """Split accesses of 256 bits in two. Drop L2::evict_*, a hint of 256-bit accesses alone."""
    if target.has(100, (8, 8)) or s.has("bulk", "async"):
        return False
    size = type_bytes(s.types[0]) if s.types else 0
    wide = (s.has("v8") and size == 4) or (s.has("v4") and size == 8)
    hints = [part for part in s.parts if part.startswith("L2::evict")]
    if not wide and not hints:
        return False
    opcode = s.without(*hints)
    if not wide:
        return s.perform(opcode, *map(shown, s.operands))
    count = next(part for part in s.parts if part in _HALF_OF)
    opcode = opcode.replace(f".{count}.", f".{_HALF_OF[count]}.")
    data, memory = (0, 1) if s.parts[0] == "ld" else (1, 0)
    address, items = s.address(memory), s.items(data)
    policy = [s.operand(2)] if len(s.operands) > 2 else []
    half = len(items) // 2
    halves = [(0, items[:half]), (16, items[half:])]
    if data == 0:
        # Earlier architectures take no `_`.
        kind = f"b{8 * size}"
        halves = [
            (offset, [s.register(kind) if item == "_" else item for item in part])
            for offset, part in halves
        ]
        if isinstance(address.base, Name) and address.base.text in items[:half]:
            halves.reverse()  # the address is overwritten last
    for offset, part in halves:
        moved = replace(address, offset=address.offset + offset)
        operands = ["{" + ", ".join(part) + "}", shown(moved)]
        s.perform(opcode, *(operands if data == 0 else reversed(operands)), *policy)
    return True


@rule("cp")
def bulk_copy_into_the_cta(s: Sequence, target: Target) -> bool:
    """Before PTX 8.6 name .shared::cluster as destination, which includes the CTA's own memory."""
    if target.has(90, (8, 6)) or not s.has("bulk") or "global" not in s.parts:
        return False
    if "shared::cta" not in s.parts[: s.parts.index("global")]:
        return False
    opcode = s.node.opcode.replace("shared::cta", "shared::cluster", 1)
    return s.perform(opcode, *map(shown, s.operands))


# Instructions of a warp, barriers, fences and launch control.


@rule("griddepcontrol", "setmaxnreg")
def launch_control(s: Sequence, target: Target) -> bool:
    """Drop instructions that the target lacks and that change no result: before sm_90 launches
    follow one another and registers are split evenly."""
    return target.number < 90 or (s.parts[0] == "setmaxnreg" and not target.suffix)


@rule("fence")
def fence(s: Sequence, target: Target) -> bool:
    """Before sm_90 drop fences of the asynchronous proxy, which does not exist there."""
    if target.number >= 90:
        return False
    if s.has("mbarrier_init") or any(part.startswith("async") for part in s.parts):
        return True
    return _wider_scope(s)


@rule("ld", "st", "atom", "red")
def cluster_scope(s: Sequence, target: Target) -> bool:
    """Before sm_90 replace the scope of a cluster by that of the GPU."""
    return target.number < 90 and _wider_scope(s)


def _wider_scope(s: Sequence) -> bool:
    if not s.has("cluster"):
        return False
    opcode = ".".join("gpu" if part == "cluster" else part for part in s.parts)
    return s.perform(opcode, *map(shown, s.operands))


@rule("mbarrier")
def polled_wait(s: Sequence, target: Target) -> bool:
    """Before sm_90 replace try_wait by test_wait; a try_wait may give up at any time, too."""
    if target.number >= 90 or not s.has("try_wait"):
        return False
    return s.perform(s.node.opcode.replace("try_wait", "test_wait"), *map(s.operand, range(3)))


_ALONE = {
    "%cluster_ctarank": "0",
    "%cluster_nctarank": "1",
    **{f"%cluster_ctaid.{axis}": "0" for axis in "xyz"},
    **{f"%cluster_nctaid.{axis}": "1" for axis in "xyz"},
    **{f"%clusterid.{axis}": f"%ctaid.{axis}" for axis in "xyz"},
    **{f"%nclusterid.{axis}": f"%nctaid.{axis}" for axis in "xyz"},
}


@rule("mov")
def cluster_registers(s: Sequence, target: Target) -> bool:
    """Before sm_90 replace the cluster's registers: a CTA is alone in its cluster."""
    if target.number >= 90 or len(s.operands) != 2:
        return False
    source = _ALONE.get(s.operand(1))
    if source is None:
        return False
    return s.perform(s.node.opcode, s.operand(0), source)
