"""The rows of the table that act on a lane alone."""

from kernels_of_rows import Row

ALL = ("sm_80", "sm_86", "sm_89", "sm_90a", "sm_120a")
BEFORE_100 = ("sm_80", "sm_86", "sm_89", "sm_90a")
BEFORE_90 = ("sm_80", "sm_86", "sm_89")
BEFORE_89 = ("sm_80", "sm_86")

_BYTES = ("e4m3x2", "e5m2x2")


ROWS: list[Row] = []

# Conversions.
for _name in (*_BYTES, "e2m1x2"):
    _narrow = "b8" if _name == "e2m1x2" else "b16"
    _lacking = BEFORE_89 if _name in _BYTES else BEFORE_100
    for _relu in ("", ".relu"):
        _text = f"cvt.rn.satfinite{_relu}.{_name}.f32 D, A, B"
        ROWS += [
            Row(f"cvt.rn{_relu}.f16x2.{_name} D, A", "b32", (_narrow,), _lacking),
            Row(_text, _narrow, ("b32", "b32"), _lacking),
        ]
for _name in _BYTES:
    for _relu in ("", ".relu"):
        _text = f"cvt.rn.satfinite{_relu}.{_name}.f16x2 D, A"
        ROWS.append(Row(_text, "b16", ("b32",), BEFORE_89))
ROWS.append(Row("cvt.rn.satfinite.e2m1x2.f32 D, 0f3F800000, A", "b8", ("b32",), BEFORE_100))

# Pairs of singles.
for _name, _letters in (("add", "AB"), ("sub", "AB"), ("mul", "AB"), ("fma", "ABC")):
    for _modifiers in ("rn", "rz", "rm", "rp", "rn.ftz"):
        _text = f"{_name}.{_modifiers}.f32x2 D, {', '.join(_letters)}"
        ROWS.append(Row(_text, "b64", ("b64",) * len(_letters), BEFORE_100))
ROWS.append(Row("add.f32x2 D, A, B", "b64", ("b64", "b64"), BEFORE_100))
ROWS.append(Row("fma.rn.f32x2 D, A, D, B", "b64", ("b64", "b64"), BEFORE_100))

# Mixed precision.
for _half in ("f16", "bf16"):
    for _modifiers in ("rn", "rz", "rm", "rp", "rn.sat"):
        _fma = f"fma.{_modifiers}.f32.{_half} D, A, B, C"
        ROWS += [
            Row(_fma, "b32", ("b16", "b16", "b32"), BEFORE_100),
            Row(f"add.{_modifiers}.f32.{_half} D, A, B", "b32", ("b16", "b32"), BEFORE_100),
            Row(f"sub.{_modifiers}.f32.{_half} D, A, B", "b32", ("b16", "b32"), BEFORE_100),
        ]

# Extremes of three.
ROWS += [
    Row(f"{name}{modifiers}.f32 D, A, B, C", "b32", ("b32",) * 3, BEFORE_100)
    for name in ("min", "max")
    for modifiers in ("", ".ftz", ".NaN", ".ftz.NaN")
]

# What came with sm_90.
for _name in ("add", "sub", "mul"):
    ROWS += [
        Row(f"{_name}.rn.bf16 D, A, B", "b16", ("b16", "b16"), BEFORE_90),
        Row(f"{_name}.bf16x2 D, A, B", "b32", ("b32", "b32"), BEFORE_90),
    ]
