"""Loads, stores and atomics that are wider than the target's."""

from __future__ import annotations

from dataclasses import replace

from nvfp4.emulator.ptx.syntax import Address, Name
from nvfp4.emulator.ptx.types import type_bytes
from nvfp4.retarget.reading import shown
from nvfp4.retarget.sequence import Impossible, Sequence, rule
from nvfp4.retarget.targets import Target

_HALF_OF = {"v8": "v4", "v4": "v2"}


def _moved(address: Address, offset_bytes: int) -> str:
    return shown(replace(address, offset=address.offset + offset_bytes))


@rule("ld", "st")
def wide_access(s: Sequence, target: Target) -> bool:
    """256 bits as two accesses of 128. L2::evict_* is a hint of 256-bit accesses alone."""
    if target.has(100, (8, 8)) or s.has("bulk", "async"):
        return False
    size = type_bytes(s.types[0]) if s.types else 0
    wide = (s.has("v8") and size == 4) or (s.has("v4") and size == 8)
    hints = [part for part in s.parts if part.startswith("L2::evict")]
    if not wide and not hints:
        return False
    opcode = s.without(*hints)
    if not wide:
        s.perform(opcode, *(s.operand(index) for index in range(len(s.operands))))
        return True
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
        operands = ["{" + ", ".join(part) + "}", _moved(address, offset)]
        s.perform(opcode, *(operands if data == 0 else reversed(operands)), *policy)
    return True


@rule("atom", "red")
def vector_atomic(s: Sequence, target: Target) -> bool:
    """Vectors of f32, f16 and f16x2, element by element: each is atomic by itself anyway."""
    if target.number >= 90 or s.has("async"):
        return False
    if s.has("b128"):
        raise Impossible("128-bit atomics start with sm_90")
    if s.has("add") and s.has("bf16", "bf16x2"):
        raise Impossible("atomics on bf16 start with sm_90")
    vectors = [part for part in s.parts if part in ("v2", "v4", "v8")]
    if not vectors:
        return False
    if not s.has("add"):
        raise Impossible("before sm_90 there is no scalar atomic for it")
    opcode = s.without(*vectors)
    size = type_bytes(s.types[0])
    first = 1 if s.parts[0] == "atom" else 0
    address, values = s.address(first), s.items(first + 1)
    policy = [s.operand(first + 2)] if len(s.operands) > first + 2 else []
    kind = f"b{8 * size}"
    results = [s.register(kind) for _ in values] if first else []
    for index, value in enumerate(values):
        s.perform(
            opcode, *results[index : index + 1], _moved(address, index * size), value, *policy
        )
    for wanted, result in zip(s.items(0) if first else (), results, strict=True):
        if wanted != "_":
            s.perform(f"mov.{kind}", wanted, result)
    return True


@rule("cp")
def bulk_copy_into_the_cta(s: Sequence, target: Target) -> bool:
    """Before PTX 8.6 the destination is in .shared::cluster, where the CTA's own memory is, too."""
    if target.has(90, (8, 6)) or not s.has("bulk") or "global" not in s.parts:
        return False
    if "shared::cta" not in s.parts[: s.parts.index("global")]:
        return False
    opcode = s.node.opcode.replace("shared::cta", "shared::cluster", 1)
    s.perform(opcode, *(s.operand(index) for index in range(len(s.operands))))
    return True
