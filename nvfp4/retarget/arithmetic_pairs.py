"""Arithmetic that later architectures do in one instruction, on values that fit two."""

from __future__ import annotations

from nvfp4.retarget.sequence import Sequence, rule
from nvfp4.retarget.targets import Target

_HALF_PAIRS = ("u16x2", "s16x2")
_ONE, _MINUS_ONE, _MINUS_ZERO = 0x3F80, 0xBF80, 0x8000  # in bf16


@rule("add", "sub", "mul", "fma")
def two_singles(s: Sequence, target: Target) -> bool:
    """f32x2: one operation for each half, rounded the same way."""
    if target.has(100, (8, 6)) or not s.has("f32x2"):
        return False
    opcode = s.node.opcode.replace("f32x2", "f32")
    halves = [s.halves(index, "b32") for index in range(1, len(s.operands))]
    low, high = (s.value(opcode, *sources) for sources in zip(*halves, strict=True))
    s.perform("mov.b64", s.operand(0), f"{{{low}, {high}}}")
    return True


@rule("add", "sub", "fma")
def mixed(s: Sequence, target: Target) -> bool:
    """f32 with factors in f16 or bf16: they widen exactly, so the f32 operation rounds once."""
    if target.has(100, (8, 6)) or len(s.types) != 2 or s.types[0] != "f32":
        return False
    narrow, last = s.types[1], len(s.operands) - 1
    sources = [s.value(f"cvt.f32.{narrow}", s.held(index, "b16")) for index in range(1, last)]
    s.perform(s.without(narrow), s.operand(0), *sources, s.operand(last))
    return True


@rule("min", "max")
def three_sources(s: Sequence, target: Target) -> bool:
    """The extreme of three is that of the third and of the first two's."""
    if target.has(100, (8, 8)) or len(s.operands) != 4:
        return False
    sources = [s.operand(index) for index in (1, 2, 3)]
    if s.has("abs"):
        sources = [s.value("abs.f32", source) for source in sources]
    opcode = s.without("abs")
    s.perform(opcode, s.operand(0), s.value(opcode, *sources[:2]), sources[2])
    return True


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
    s.perform(f"fma.rn.{s.types[0]}", s.operand(0), *sources)
    return True


@rule("add", "sub", "min", "max")
def pairs_of_integers(s: Sequence, target: Target) -> bool:
    """u16x2 and s16x2: one operation for each half."""
    if target.number >= 90 or not s.has(*_HALF_PAIRS):
        return False
    opcode = s.without("relu").removesuffix("x2")
    pairs = [s.halves(index, "b16") for index in (1, 2)]
    halves = [s.value(opcode, *sources, kind="b16") for sources in zip(*pairs, strict=True)]
    if s.has("relu"):
        halves = [s.value("max.s16", half, 0, kind="b16") for half in halves]
    s.perform("mov.b32", s.operand(0), f"{{{halves[0]}, {halves[1]}}}")
    return True
