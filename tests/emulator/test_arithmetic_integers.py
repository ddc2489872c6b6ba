"""Integer, logic and comparison instructions against plain Python integers."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from lane_operands import agree, both_halves, call, operands

from nvfp4.emulator.arithmetic import resolve
from nvfp4.emulator.errors import UnsupportedInstruction

Oracle = Callable[..., Any]


def signed(x: int, width: int) -> int:
    return x - (1 << width) if x >> (width - 1) & 1 else x


def clamp(x: int, low: int, high: int) -> int:
    return max(low, min(high, x))


def toward_zero(a: int, b: int) -> int:
    quotient = abs(a) // abs(b)
    return quotient if (a < 0) == (b < 0) else -quotient


def reader(kind: str) -> Callable[[int], int]:
    """Bits to the value of a type such as s16."""
    width = int(kind[1:])
    return (lambda x: signed(x, width)) if kind[0] == "s" else (lambda x: x)


def by_value(kind: str, function: Oracle) -> Oracle:
    """An oracle on values: sources read as `kind` (u32, s16, ...), the result cut to its width."""
    value, width = reader(kind), int(kind[1:])
    return lambda *words: int(function(*map(value, words))) % (1 << width)


def carrying(width: int, cc: str, function: Oracle) -> Oracle:
    """An oracle on bits that also returns the carry or borrow if `cc`."""

    def oracle(*words: int) -> Any:
        rest, carry = function(*words) % (1 << width), function(*words) >> width & 1
        return (rest, carry) if cc else rest

    return oracle


CASES: dict[str, Oracle] = {}

for _kind in ("u16", "s16", "u32", "s32", "u64", "s64"):
    _w = int(_kind[1:])
    _value = reader(_kind)
    _wide = 1 << (2 * _w)
    CASES |= {
        f"add.{_kind}": by_value(_kind, lambda a, b: a + b),
        f"sub.{_kind}": by_value(_kind, lambda a, b: a - b),
        f"mul.lo.{_kind}": by_value(_kind, lambda a, b: a * b),
        f"mul.hi.{_kind}": by_value(_kind, lambda a, b, w=_w: a * b >> w),
        f"mad.lo.{_kind}": by_value(_kind, lambda a, b, c: a * b + c),
        f"mad.hi.{_kind}": by_value(_kind, lambda a, b, c, w=_w: (a * b >> w) + c),
        f"min.{_kind}": by_value(_kind, min),
        f"max.{_kind}": by_value(_kind, max),
        f"div.{_kind}": by_value(_kind, lambda a, b: toward_zero(a, b) if b else -1),
        f"rem.{_kind}": by_value(_kind, lambda a, b: a - toward_zero(a, b) * b if b else -1),
        f"sad.{_kind}": by_value(_kind, lambda a, b, c: c + abs(a - b)),
        f"setp.lt.{_kind}": lambda a, b, v=_value: v(a) < v(b),
        f"setp.ge.{_kind}": lambda a, b, v=_value: v(a) >= v(b),
    }
    CASES[f"shr.{_kind}"] = lambda a, n, v=_value, w=_w: (v(a) >> min(n, 2 * w)) % (1 << w)
    if _w < 64:
        CASES[f"mul.wide.{_kind}"] = lambda a, b, v=_value, n=_wide: v(a) * v(b) % n
        CASES[f"mad.wide.{_kind}"] = lambda a, b, c, v=_value, n=_wide: (v(a) * v(b) + c) % n
    if _kind[0] == "s":
        CASES[f"abs.{_kind}"] = by_value(_kind, abs)
        CASES[f"neg.{_kind}"] = by_value(_kind, lambda a: -a)
    for _c, _cc in (("", ".cc"), ("c", ""), ("c", ".cc")) if _w > 16 else ():
        CASES[f"add{_c}{_cc}.{_kind}"] = carrying(_w, _cc, lambda a, b, f=0: a + b + f)
        CASES[f"sub{_c}{_cc}.{_kind}"] = carrying(_w, _cc, lambda a, b, f=0: a - b - f)
        for _part in ("lo", "hi"):
            CASES[f"mad{_c}.{_part}{_cc}.{_kind}"] = carrying(
                _w, _cc, lambda a, b, c, f=0, m=CASES[f"mul.{_part}.{_kind}"]: m(a, b) + c + f
            )


def of_24_bits(kind: str, shift: int) -> Oracle:
    low, sign = reader(f"{kind[0]}24"), reader(kind)
    return lambda a, b, c=0: ((low(a % 2**24) * low(b % 2**24) >> shift) + sign(c)) % 2**32


for _kind in ("u32", "s32"):
    for _part, _shift in (("lo", 0), ("hi", 16)):
        CASES[f"mul24.{_part}.{_kind}"] = of_24_bits(_kind, _shift)
        CASES[f"mad24.{_part}.{_kind}"] = of_24_bits(_kind, _shift)
CASES |= {
    "add.sat.s32": by_value("s32", lambda a, b: clamp(a + b, -(2**31), 2**31 - 1)),
    "sub.sat.s32": by_value("s32", lambda a, b: clamp(a - b, -(2**31), 2**31 - 1)),
    "add.u16x2": both_halves(by_value("u16", lambda a, b: a + b)),
    "min.s16x2": both_halves(by_value("s16", min)),
    "max.u16x2": both_halves(by_value("u16", max)),
}


def dot(a: int, b: int, c: int, kinds: str) -> int:
    """dp4a: the bytes of a times those of b."""
    pairs = ((a >> 8 * i & 255, b >> 8 * i & 255) for i in range(4))
    read = [reader(f"{kind}8") for kind in kinds]
    return (c + sum(read[0](x) * read[1](y) for x, y in pairs)) % 2**32


for _kinds in ("uu", "us", "su", "ss"):
    _types = f"{_kinds[0]}32.{_kinds[1]}32"
    CASES[f"dp4a.{_types}"] = lambda a, b, c, k=_kinds: dot(a, b, c, k)


def permute(a: int, b: int, selector: int) -> int:
    pool = (a | b << 32).to_bytes(8, "little")
    out = []
    for i in range(4):
        nibble = selector >> (4 * i) & 15
        byte = pool[nibble & 7]
        out.append((255 if byte & 128 else 0) if nibble & 8 else byte)
    return int.from_bytes(bytes(out), "little")


CASES["prmt.b32"] = permute


def truth(a: int, b: int, c: int, table: int) -> int:
    cases = ((a >> i & 1) * 4 + (b >> i & 1) * 2 + (c >> i & 1) for i in range(32))
    return sum((table >> case & 1) << i for i, case in enumerate(cases))


def extract(a: int, position: int, length: int, width: int, is_signed: bool) -> int:
    if width == 32:
        position, length = position & 255, length & 255
    position, length = min(position, width), min(length, width)
    bits = [a >> i & 1 for i in range(width)]
    last = bits[min(position + length - 1, width - 1)] if length and is_signed else 0
    out = [
        bits[position + i] if i < length and position + i < width else last for i in range(width)
    ]
    return sum(bit << i for i, bit in enumerate(out))


def insert(field: int, base: int, position: int, length: int, width: int) -> int:
    if width == 32:
        position, length = position & 255, length & 255
    for i in range(min(length, width)):
        if position + i < width:
            base = base & ~(1 << (position + i)) | (field >> i & 1) << (position + i)
    return base


for _w in (32, 64):
    _ones = 2**_w - 1
    CASES |= {
        f"and.b{_w}": lambda a, b: a & b,
        f"or.b{_w}": lambda a, b: a | b,
        f"xor.b{_w}": lambda a, b: a ^ b,
        f"not.b{_w}": lambda a, n=_ones: a ^ n,
        f"shl.b{_w}": lambda a, n, w=_w: a << min(n, w) & (2**w - 1),
        f"popc.b{_w}": lambda a: a.bit_count(),
        f"clz.b{_w}": lambda a, w=_w: w - a.bit_length(),
        f"brev.b{_w}": lambda a, w=_w: int(f"{a:0{w}b}"[::-1], 2),
        f"bfind.u{_w}": lambda a: (a.bit_length() - 1) % 2**32,
        f"bfind.shiftamt.u{_w}": lambda a, w=_w: (w - a.bit_length()) if a else 2**32 - 1,
        f"bfind.s{_w}": lambda a, w=_w, n=_ones: (
            (((a ^ n) if a >> (w - 1) else a).bit_length() - 1) % 2**32
        ),
        f"bfe.u{_w}": lambda a, p, n, w=_w: extract(a, p, n, w, False),
        f"bfe.s{_w}": lambda a, p, n, w=_w: extract(a, p, n, w, True),
        f"bfi.b{_w}": lambda f, b, p, n, w=_w: insert(f, b, p, n, w),
        f"selp.b{_w}": lambda a, b, p: a if p else b,
    }

CASES |= {
    "shl.b16": lambda a, n: a << min(n, 16) & 0xFFFF,
    "and.pred": lambda a, b: a & b,
    "xor.pred": lambda a, b: a ^ b,
    "not.pred": lambda a: 1 - a,
    "shf.l.wrap.b32": lambda a, b, n: (a | b << 32) << (n & 31) >> 32 & 0xFFFFFFFF,
    "shf.r.wrap.b32": lambda a, b, n: (a | b << 32) >> (n & 31) & 0xFFFFFFFF,
    "shf.l.clamp.b32": lambda a, b, n: (a | b << 32) << min(n, 32) >> 32 & 0xFFFFFFFF,
    "shf.r.clamp.b32": lambda a, b, n: (a | b << 32) >> min(n, 32) & 0xFFFFFFFF,
    "bmsk.clamp.b32": lambda a, b: ((1 << min(b, 32)) - 1) << min(a, 32) & 0xFFFFFFFF,
    "bmsk.wrap.b32": lambda a, b: ((1 << (b & 31)) - 1) << (a & 31) & 0xFFFFFFFF,
    "set.lt.u32.s32": lambda a, b: 2**32 - 1 if signed(a, 32) < signed(b, 32) else 0,
    "set.eq.f32.u32": lambda a, b: 0x3F800000 if a == b else 0,
    "setp.ls.u32": lambda a, b: a <= b,
    "setp.hi.u64": lambda a, b: a > b,
    "setp.ne.b16": lambda a, b: a != b,
    "setp.eq.and.s32": lambda a, b, c: a == b and c,
    "setp.lt.xor.u32": lambda a, b, c: (a < b) != bool(c),
}

for _to in ("u8", "s8", "u16", "s16", "u32", "s32", "u64", "s64"):
    for _from in ("u8", "s8", "u16", "s16", "u32", "s32", "u64", "s64"):
        _w = int(_to[1:])
        _range = (0, 2**_w - 1) if _to[0] == "u" else (-(2 ** (_w - 1)), 2 ** (_w - 1) - 1)
        _read = reader(_from)
        CASES[f"cvt.{_to}.{_from}"] = lambda a, r=_read, w=_w: r(a) % 2**w
        CASES[f"cvt.sat.{_to}.{_from}"] = lambda a, r=_read, w=_w, s=_range: clamp(r(a), *s) % 2**w


@pytest.mark.parametrize("opcode", CASES)
def test_an_integer_instruction_agrees_with_python(opcode: str) -> None:
    op = resolve(opcode)
    agree(op, [column[:1500] for column in operands(op, 200)], CASES[opcode])


def test_lop3_computes_every_truth_table() -> None:
    words = np.random.default_rng(1).integers(0, 2**32, (3, 8), dtype=np.uint64).astype(np.uint32)
    for table in range(256):
        (got,) = resolve("lop3.b32").function(*words, np.array(table, dtype=np.uint32))
        assert got.tolist() == [truth(int(a), int(b), int(c), table) for a, b, c in words.T]


def test_setp_with_two_results_gives_the_opposite_too() -> None:
    assert call("setp.lt.s32", 1, 2, results=2) == (1, 0)
    assert call("setp.lt.and.s32", 1, 2, 0, results=2) == (0, 0)
    assert call("setp.ge.or.s32", 1, 2, 1, results=2) == (1, 1)


def test_an_immediate_broadcasts_and_nothing_is_written() -> None:
    a = np.arange(8, dtype=np.uint32)
    before = a.copy()
    for opcode in ("add.u32", "prmt.b32", "bfi.b32", "shl.b32", "dp4a.u32.u32"):
        op = resolve(opcode)
        (result,) = op.function(a, *([np.array(3, dtype=np.uint32)] * (len(op.sources) - 1)))
        assert result.shape == (8,)
        assert not np.shares_memory(result, a)
        np.testing.assert_array_equal(a, before)


def test_an_unknown_instruction_is_named() -> None:
    unknown = ("wgmma.nonsense", "add.u7", "add.rn.u32", "setp.equ.s32", "cvt.s32.f32")
    for opcode in (*unknown, "min.cc.u32", "mul.lo.cc.u32", "mad.wide.cc.u32", "addc.u16"):
        with pytest.raises(UnsupportedInstruction, match=opcode.replace(".", r"\.")):
            resolve(opcode)
