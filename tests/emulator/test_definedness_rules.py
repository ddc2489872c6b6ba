"""Every rule against the truth: the bits that change when the undefined ones take all values."""

import numpy as np
import pytest

from nvfp4.emulator.arithmetic import REGISTER_DTYPES, resolve
from nvfp4.emulator.arithmetic.definedness import rule_of, transfer

UNDEFINED_BITS = 6

# Their shadows are exact.
EXACT = [
    "and.b32", "or.b64", "xor.b16", "not.b32", "and.pred", "or.pred", "xor.pred", "not.pred",
    "shl.b32", "shr.u32", "shr.s32", "shr.s16", "shl.b64", "shf.l.wrap.b32", "shf.r.clamp.b32",
    "prmt.b32", "brev.b32", "selp.b32", "selp.b64", "bfe.u32", "bfe.s32", "bfe.u64",
    "bfi.b32", "bfi.b64", "lop3.b32", "copysign.f32",
    "cvt.u16.u32", "cvt.s64.s32", "cvt.u32.u8", "cvt.s32.s8", "cvt.u8.u64",
]  # fmt: skip
# In these, the sources that steer: undefined, they make everything undefined.
STEERED = {
    "shl": (1,), "shr": (1,), "shf": (2,), "prmt": (2,), "bfe": (1, 2), "bfi": (2, 3),
    "lop3": (3,),
}  # fmt: skip
SAFE = [
    "add.u32", "sub.s64", "neg.s32", "mul.lo.u32", "mul.hi.u32", "mul.wide.s32", "mul.wide.u16",
    "mad.lo.s32", "mad.wide.u32", "mad.hi.u32", "sad.s16",
    "add.cc.u32", "subc.s64", "subc.cc.u64", "mad.lo.cc.u32", "madc.hi.cc.s32",
    "add.s16x2", "min.u32", "max.s16x2", "abs.s32",
    "div.u32", "rem.s32", "dp4a.u32.s32", "popc.b32", "clz.b64", "bfind.u32", "bfind.s32",
    "bfind.shiftamt.u32",
    "setp.eq.u32", "setp.ne.b64", "setp.lt.s32", "setp.ltu.f32", "setp.eq.and.s32",
    "setp.ne.or.u32", "setp.ge.xor.s32", "setp.lt.and.f32", "set.lt.u32.s32",
    "add.rn.f32", "fma.rn.f32", "add.rn.f16x2", "fma.rn.bf16x2", "mul.rn.f32x2", "neg.f16x2",
    "ex2.approx.f16x2", "cvt.rn.f16x2.f32", "cvt.rn.bf16x2.f32", "cvt.rn.f16x2.e4m3x2",
    "cvt.rn.f16x2.e2m1x2", "cvt.rn.satfinite.e2m1x2.f32", "cvt.rn.satfinite.e4m3x2.f32",
    "cvt.rn.f32.s32", "cvt.rni.s32.f32", "cvt.sat.u8.s32", "cvt.f32.f16",
]  # fmt: skip
TWO_PREDICATES = ["setp.eq.s32", "setp.lt.and.u32", "setp.ne.or.s32", "setp.lt.f16x2"]


def check(opcode: str, results: int, exact: bool) -> None:
    op = resolve(opcode, results)
    sources = op.sources
    rule = transfer(rule_of(op), op.results)
    random = np.random.default_rng(len(opcode))
    steering = STEERED.get(op.opcode.split(".")[0], ()) if exact else ()
    for case in range(40):
        widths = [1 if c == "pred" else 8 * REGISTER_DTYPES[c].itemsize for c in sources]
        places = [(s, b) for s, w in enumerate(widths) if s not in steering for b in range(w)]
        count = min(case % (UNDEFINED_BITS + 1), len(places))
        chosen = [places[i] for i in random.choice(len(places), count, replace=False)]
        values, shadows = [], []
        for i, (cls, width) in enumerate(zip(sources, widths, strict=True)):
            small = i in steering and opcode[:4] not in ("prmt", "lop3")
            value = int(random.integers(width if small else 1 << 63)) % (1 << width)
            shadow = sum(1 << bit for s, bit in chosen if s == i)
            every = np.full(1 << count, value & ~shadow, np.uint64)
            for n, (s, bit) in enumerate(chosen):
                if s == i:
                    every |= (
                        np.arange(1 << count, dtype=np.uint64) >> np.uint64(n) & np.uint64(1)
                    ) << (np.uint64(bit))
            values.append(every.astype(REGISTER_DTYPES[cls]))
            shadows.append(np.array([shadow], np.uint64).astype(REGISTER_DTYPES[cls]))
        if op.opcode.startswith("lop3"):
            values[3] = values[3][:1]
        outcomes = op.function(*values)
        # The rule sees one of the assignments, as a kernel does.
        at = int(random.integers(1 << count))
        seen = [v[at : at + 1] if v.size > 1 else v for v in values]
        for found, outcome in zip(rule(seen, shadows), outcomes, strict=True):
            assert found.dtype == outcome.dtype
            outcome = np.broadcast_to(outcome, (1 << count,))
            varies = np.bitwise_or.reduce(outcome ^ outcome[0])
            told = found.reshape(-1)[0]
            text = f"{opcode}, values {seen}, shadows {shadows}: {varies} varies, {told} is told"
            assert not varies & ~told, text
            if exact:
                assert varies == told, text


@pytest.mark.parametrize("opcode", EXACT)
def test_what_moves_bits_is_exact(opcode: str) -> None:
    check(opcode, 1, exact=True)


@pytest.mark.parametrize("opcode", [*EXACT, *SAFE])
def test_no_undefined_bit_is_missed(opcode: str) -> None:
    check(opcode, 1, exact=False)


@pytest.mark.parametrize("opcode", TWO_PREDICATES)
def test_pairs_of_predicates(opcode: str) -> None:
    check(opcode, 2, exact=False)
