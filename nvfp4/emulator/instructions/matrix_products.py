"""mma.sync: a warp multiplies small matrices whose elements lie spread over its lanes."""

from __future__ import annotations

from nvfp4.emulator.instructions.action import Action, instruction
from nvfp4.emulator.instructions.fragments import (
    ELEMENT_BITS,
    INTEGERS,
    Product,
    product_action,
)
from nvfp4.emulator.instructions.site import Site

WHAT_RUNS = (
    "a GPU can judge it; here mma.sync and wmma on integers, e4m3, e5m2, f16, bf16, tf32 and f64 "
    "can be (a dot of Triton becomes one with 16 rows and one warp)"
)

_SHAPES = {
    1: {"m8n8k128": (8, 16), "m16n8k128": (16, 16), "m16n8k256": (16, 32)},
    4: {"m8n8k32": (8, 16), "m16n8k32": (16, 16), "m16n8k64": (16, 32)},
    8: {"m8n8k16": (8, 16), "m16n8k16": (16, 16), "m16n8k32": (16, 32)},
    16: {"m16n8k8": (16, 16), "m16n8k16": (16, 32)},
    32: {"m16n8k4": (16, 16), "m16n8k8": (16, 32)},
    64: {"m8n8k4": (8, 32), "m16n8k4": (16, 32), "m16n8k8": (16, 64), "m16n8k16": (16, 128)},
}
"""By the bits of an element, rows of a and bytes of one; b has 8 columns."""

_FLAGS = ("satfinite", "and", "xor", "popc")


@instruction("mma")
def mma(site: Site) -> Action:
    """mma.sync.aligned.shape.row.col{.satfinite}.dtype.atype.btype.ctype{.op.popc} d, a, b, c."""
    form = _form(site)
    site.takes(4)
    return product_action(site, form, form.factors, [site.items(index) for index in range(4)])


def _form(site: Site) -> Product:
    """Raises UnsupportedInstruction."""
    shape = site.parts[3:4]
    types = [part for part in site.parts[4:] if part not in ("row", "col", *_FLAGS)]
    form = None
    if site.parts[1:3] == ("sync", "aligned") and shape and len(types) == 4:
        flags = {flag for flag in _FLAGS if flag in site.parts}
        form = _known(shape[0], types, flags)
    if form is None and any(part.startswith("kind::") for part in site.parts):
        raise site.unsupported(
            f"{site.opcode}: mma.sync on block-scaled elements, or those of 4 and 6 bits, is for "
            "sm_120a; ptxas refuses it for sm_90a and sm_100a",
            hint="on sm_100a tcgen05.mma does that",
        )
    if form is None:
        raise site.unsupported(
            f"{site.opcode}: of the tensor cores only mma.sync and wmma on integers, e4m3, e5m2, "
            "f16, bf16, tf32 and f64 are emulated",
            hint=WHAT_RUNS,
        )
    return form


def _known(shape: str, types: list[str], flags: set[str]) -> Product | None:
    d, a, b, c = types
    if not {a, b} <= set(ELEMENT_BITS) or d != c:
        return None
    bits = ELEMENT_BITS[a]
    integers = a in INTEGERS
    mixed = bits in (4, 8) and (b in INTEGERS) == integers and ELEMENT_BITS[b] == bits
    if (a != b and not mixed) or shape not in _SHAPES[bits]:
        return None
    rows, row_bytes = _SHAPES[bits][shape]
    if d not in sums_of(a) or (rows == 8 and not integers and a != "f64"):
        return None
    combine = flags & {"and", "xor"}
    if a == "b1":
        wrong = len(combine) != 1 or flags - combine != {"popc"}
    else:
        wrong = bool(flags - ({"satfinite"} if integers else set()))
    if wrong:
        return None
    return Product(rows, 8, row_bytes, a, b, c, d, "satfinite" in flags, *combine)


def sums_of(kind: str) -> tuple[str, ...]:
    """The types that sums of products of a type may have."""
    if kind in INTEGERS:
        return ("s32",)
    if kind == "f64":
        return ("f64",)
    return ("f32",) if kind in ("bf16", "tf32") else ("f32", "f16")
