"""Instruction descriptors of tcgen05.mma: shapes and types.

Bits 7-9 and 10-12 are the types of a and b, 13 and 14 negate them, 15 and 16 transpose them, 17-22
N / 8. Without block scales bits 4-5 are the type of d, 3 saturates integers, 24-28 M / 16. With
them bits 4-5 and 29-30 select bytes of the scales of b and a, 23 is the scales' type, 27-28 M /
128, and 31 K of FP4 (96 if set). Source: PTX ISA, Instruction descriptor.
"""

from itertools import compress

from nvfp4.records.base import Record

_FLOAT = {0: "f16", 1: "bf16"}
_NARROW = {0: "e4m3", 1: "e5m2", 3: "e2m3", 4: "e3m2", 5: "e2m1"}
_TYPES: dict[str, dict[int, str]] = {
    "f16": _FLOAT,
    "tf32": {2: "tf32"},
    "f8f6f4": _NARROW,
    "i8": {0: "u8", 1: "s8"},
    "mxf8f6f4": _NARROW,
    "mxf4": {1: "e2m1"},
    "mxf4nvf4": {1: "e2m1"},
}
_SUMS = {
    "f16": {0: "f16", 1: "f32"},
    "tf32": {1: "f32"},
    "f8f6f4": {0: "f16", 1: "f32"},
    "i8": {2: "s32"},
}
BLOCK_SCALED = ("mxf8f6f4", "mxf4", "mxf4nvf4")
KINDS = tuple(_TYPES)
DEPTH_BYTES = 32
"""Bytes of a row of a or b in one instruction, for every kind."""
_DEPTHS = {"f16": 16, "tf32": 8, "mxf4": 64, "mxf4nvf4": 64}


class InstructionDescriptor(Record):
    """A decoded instruction descriptor."""

    kind: str
    """The name after `kind::`."""
    rows: int
    """M."""
    columns: int
    """N."""
    a: str
    b: str
    d: str
    """Type of the sums."""
    negate_a: bool
    negate_b: bool
    transpose_a: bool
    transpose_b: bool
    saturates: bool = False
    scale_type: str | None = None
    """ue8m0 or ue4m3; None without block scales."""
    a_scale_byte: int = 0
    """First byte of a's scales in the words that hold them."""
    b_scale_byte: int = 0
    """First byte of b's scales in the words that hold them."""

    @property
    def depth(self) -> int:
        """K: elements along k."""
        return _DEPTHS.get(self.kind, 32)

    @property
    def element_bytes(self) -> int:
        """Bytes of an element of a or b in shared memory; 1 for pairs of FP4."""
        return {"f16": 2, "tf32": 4}.get(self.kind, 1)

    def __str__(self) -> str:
        text = f"kind::{self.kind}, M {self.rows}, N {self.columns}, "
        text += f"{self.a} x {self.b} -> {self.d}"
        if self.scale_type:
            text += f", scales {self.scale_type}"
        names = ("-a", "-b", "a transposed", "b transposed", "saturating")
        flags = (self.negate_a, self.negate_b, self.transpose_a, self.transpose_b, self.saturates)
        return ", ".join([text, *compress(names, flags)])


class Contradiction(Exception):
    """A descriptor that its instruction's kind does not allow; the message says why."""


class NotEmulated(Exception):
    """A descriptor of something that hardware supports and the emulator does not; the message
    names it."""


def decode(bits: int, kind: str, scale_vector: int | None, group: int) -> InstructionDescriptor:
    """Take a descriptor apart. scale_vector: scales a row in one instruction, None without block
    scales. group: CTAs that execute it together. Raises Contradiction and NotEmulated."""

    def field(low: int, width: int) -> int:
        return bits >> low & ((1 << width) - 1)

    def named(table: dict[int, str], code: int, what: str) -> str:
        if code not in table:
            known = ", ".join(f"{number} ({name})" for number, name in table.items())
            raise Contradiction(f"{what} is {code}, and kind::{kind} takes {known}")
        return table[code]

    if field(2, 1):
        raise NotEmulated("a sparse matrix (bit 2 of the instruction descriptor)")
    types, four_bits = _TYPES[kind], kind in ("mxf4", "mxf4nvf4")
    a = named(types, field(7, 3), "the type of a (bits 7-9)")
    b = named(types, field(10, 2 if four_bits else 3), "the type of b (bits 10-12)")
    common = {
        "kind": kind, "columns": field(17, 6) * 8, "a": a, "b": b,
        "negate_a": bool(field(13, 1)), "negate_b": bool(field(14, 1)),
        "transpose_a": bool(field(15, 1)), "transpose_b": bool(field(16, 1)),
    }  # fmt: skip
    if four_bits and (field(15, 1) or field(16, 1)):
        raise Contradiction(f"it transposes a matrix, which kind::{kind} does not")
    if kind == "i8" and (field(13, 1) or field(14, 1)):
        raise Contradiction("it negates a matrix, which kind::i8 does not")
    if scale_vector is None:
        found = InstructionDescriptor(
            rows=field(24, 5) * 16,
            d=named(_SUMS[kind], field(4, 2), "the type of d (bits 4-5)"),
            saturates=bool(field(3, 1)),
            **common,  # type: ignore[arg-type]
        )
        if found.saturates and kind != "i8":
            raise Contradiction(f"it saturates (bit 3), which kind::{kind} does not")
        reserved = field(6, 1) or field(23, 1) or field(29, 1) or field(30, 2)
    else:
        if four_bits and field(31, 1):
            raise NotEmulated("K = 96 (bit 31 of the instruction descriptor), which sm_103a has")
        found = InstructionDescriptor(
            rows=field(27, 2) * 128,
            d="f32",
            scale_type="ue8m0" if field(23, 1) else "ue4m3",
            a_scale_byte=field(29, 2),
            b_scale_byte=field(4, 2),
            **common,  # type: ignore[arg-type]
        )
        reserved = field(0, 2) or field(3, 1) or field(6, 1) or field(24, 3)
        if found.scale_type == "ue4m3" and (kind != "mxf4nvf4" or scale_vector != 4):
            raise Contradiction(
                "the scales are UE4M3 (bit 23 is 0), which only kind::mxf4nvf4 with scale_vec::4X "
                "has"
            )
        for name, byte in (("a", found.a_scale_byte), ("b", found.b_scale_byte)):
            if byte % scale_vector:
                raise Contradiction(
                    f"the scale id of {name} is {byte}, and {scale_vector} scales a row begin at a "
                    f"multiple of {scale_vector}"
                )
    if reserved:
        raise Contradiction(f"reserved bits of {bits:#010x} are not 0")
    _check_shape(found, group)
    return found


def _check_shape(found: InstructionDescriptor, group: int) -> None:
    rows, columns = found.rows, found.columns
    if group == 2:
        step = 32 if found.kind == "i8" else 16
        right = rows in (128, 256) and step <= columns <= 256 and columns % step == 0
        shapes = f"M = 128, 256 and N = {step}, {2 * step}, ... 256"
    elif found.kind in BLOCK_SCALED:
        right = rows == 128 and 8 <= columns <= 256
        shapes = "M = 128 and N = 8, 16, ... 256"
    elif found.kind == "i8":
        right = rows in (64, 128) and (
            columns in (8, 24) or (16 <= columns <= 256 and columns % 16 == 0)
        )
        shapes = "M = 64, 128 and N = 8, 16, 24, 32, 48, ... 256"
    else:
        step = 8 if rows == 64 else 16
        right = rows in (64, 128) and step <= columns <= 256 and columns % step == 0
        shapes = "M = 64 and N = 8, 16, ... 256, or M = 128 and N = 16, 32, ... 256"
    if not right:
        raise Contradiction(
            f"M = {rows} and N = {columns}, where kind::{found.kind} has {shapes} with "
            f"cta_group::{group}"
        )
    if found.element_bytes == 1 and found.transpose_b and columns % (16 * group):
        message = f"b of 8 bits is transposed, and N = {columns} is no multiple of {16 * group}"
        raise Contradiction(message)
