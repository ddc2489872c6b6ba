"""The rows of the table that act on a lane alone."""

from kernels_of_rows import Row

ALL = ("sm_80", "sm_86", "sm_89", "sm_90a", "sm_120a")
BEFORE_100 = ("sm_80", "sm_86", "sm_89", "sm_90a")
BEFORE_90 = ("sm_80", "sm_86", "sm_89")
BEFORE_89 = ("sm_80", "sm_86")

_BYTES = ("e4m3x2", "e5m2x2")


def _conversions() -> list[Row]:
    found = []
    for name in (*_BYTES, "e2m1x2"):
        narrow = "b8" if name == "e2m1x2" else "b16"
        lacking = BEFORE_89 if name in _BYTES else BEFORE_100
        for relu in ("", ".relu"):
            found += [
                Row(f"cvt.rn{relu}.f16x2.{name} D, A", "b32", (narrow,), lacking),
                Row(f"cvt.rn.satfinite{relu}.{name}.f32 D, A, B", narrow, ("b32", "b32"), lacking),
            ]
    for name in _BYTES:
        for relu in ("", ".relu"):
            text = f"cvt.rn.satfinite{relu}.{name}.f16x2 D, A"
            found.append(Row(text, "b16", ("b32",), BEFORE_89))
    found.append(Row("cvt.rn.satfinite.e2m1x2.f32 D, 0f3F800000, A", "b8", ("b32",), BEFORE_100))
    return found


def _pairs_of_singles() -> list[Row]:
    found = []
    for name, letters in (("add", "AB"), ("sub", "AB"), ("mul", "AB"), ("fma", "ABC")):
        for modifiers in ("rn", "rz", "rm", "rp", "rn.ftz"):
            text = f"{name}.{modifiers}.f32x2 D, {', '.join(letters)}"
            found.append(Row(text, "b64", ("b64",) * len(letters), BEFORE_100))
    found.append(Row("add.f32x2 D, A, B", "b64", ("b64", "b64"), BEFORE_100))
    found.append(Row("fma.rn.f32x2 D, A, D, B", "b64", ("b64", "b64"), BEFORE_100))
    return found


def _mixed() -> list[Row]:
    found = []
    for half in ("f16", "bf16"):
        for modifiers in ("rn", "rz", "rm", "rp", "rn.sat"):
            found += [
                Row(f"fma.{modifiers}.f32.{half} D, A, B, C", "b32", ("b16", "b16", "b32"), ()),
                Row(f"add.{modifiers}.f32.{half} D, A, B", "b32", ("b16", "b32"), ()),
                Row(f"sub.{modifiers}.f32.{half} D, A, B", "b32", ("b16", "b32"), ()),
            ]
    return [Row(row.text, row.result, row.sources, BEFORE_100) for row in found]


def _extremes() -> list[Row]:
    return [
        Row(f"{name}{modifiers}.f32 D, A, B, C", "b32", ("b32",) * 3, BEFORE_100)
        for name in ("min", "max")
        for modifiers in ("", ".ftz", ".NaN", ".ftz.NaN")
    ]


def _before_90() -> list[Row]:
    found: list[Row] = []
    for name in ("add", "sub", "mul"):
        found += [
            Row(f"{name}.rn.bf16 D, A, B", "b16", ("b16", "b16"), BEFORE_90),
            Row(f"{name}.bf16x2 D, A, B", "b32", ("b32", "b32"), BEFORE_90),
        ]
    return found


ROWS = [*_conversions(), *_pairs_of_singles(), *_mixed(), *_extremes(), *_before_90()]
