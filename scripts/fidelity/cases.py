"""Which instructions of sm_90 are compared with the emulator: opcodes, written with braces."""

import re
from itertools import product

INTEGERS = "{u16,s16,u32,s32,u64,s64}"

EXACT_PATTERNS = [
    # Integer arithmetic
    f"{{add,sub}}.{INTEGERS}",
    "add.{u16x2,s16x2}",
    f"mul.{{lo,hi}}.{INTEGERS}",
    "mul.wide.{u16,s16,u32,s32}",
    f"mad.{{lo,hi}}.{INTEGERS}",
    "mad.wide.{u16,s16,u32,s32}",
    f"{{div,rem}}.{INTEGERS}",
    "{abs,neg}.{s16,s32,s64}",
    f"{{min,max}}.{INTEGERS}",
    "{min,max}.{u16x2,s16x2}",
    "dp4a.{u32,s32}.{u32,s32}",
    # Logic
    "{and,or,xor}.{pred,b16,b32,b64}",
    "not.{pred,b16,b32,b64}",
    "lop3.b32",
    "shl.{b16,b32,b64}",
    "shr.{b16,b32,b64,u16,s16,u32,s32,u64,s64}",
    "shf.{l,r}.{wrap,clamp}.b32",
    "prmt.b32",
    "{popc,clz,brev}.{b32,b64}",
    "bfind{,.shiftamt}.{u32,s32,u64,s64}",
    "bfe.{u32,s32,u64,s64}",
    "bfi.{b32,b64}",
    "selp.{b16,b32,b64}",
    # Floating point
    "{add,sub,mul}{,.rn,.rz,.rm,.rp}{,.ftz}{,.sat}.f32",
    "fma.{rn,rz,rm,rp}{,.ftz}{,.sat}.f32",
    "{add,sub,mul}{,.rn,.rz,.rm,.rp}.f64",
    "fma.{rn,rz,rm,rp}.f64",
    "{add,sub,mul}{,.rn}{,.ftz}{,.sat}.{f16,f16x2}",
    "fma.rn{,.ftz}{,.sat}.{f16,f16x2}",
    "fma.rn{,.ftz}.relu.{f16,f16x2}",
    "{add,sub,mul}{,.rn}.{bf16,bf16x2}",
    "fma.rn{,.relu}.{bf16,bf16x2}",
    "{abs,neg}{,.ftz}.{f32,f16,f16x2}",
    "{abs,neg}.{f64,bf16,bf16x2}",
    "{min,max}{,.ftz}{,.NaN}{,.xorsign.abs}.{f32,f16,f16x2}",
    "{min,max}{,.NaN}{,.xorsign.abs}.{bf16,bf16x2}",
    "{min,max}.f64",
    "copysign.{f32,f64}",
    "{div,rcp,sqrt}.{rn,rz,rm,rp}{,.ftz}.f32",
    "{div,rcp,sqrt}.{rn,rz,rm,rp}.f64",
    # Comparison
    f"setp.{{eq,ne,lt,le,gt,ge}}.{INTEGERS}",
    "setp.{lo,ls,hi,hs}.{u16,u32,u64}",
    "setp.{eq,ne}.{b16,b32,b64}",
    "setp.{lt,ge}.{and,or,xor}.{s32,f32,f16}",
    "setp.{eq,ne,lt,le,gt,ge,equ,neu,ltu,leu,gtu,geu,num,nan}{,.ftz}.{f32,f16}",
    "setp.{eq,ne,lt,le,gt,ge,equ,neu,ltu,leu,gtu,geu,num,nan}.{f64,bf16}",
    "setp.{lt,geu,num}.{f16x2,bf16x2}",
    "set.{eq,lt,ge}.{u32,s32,f32}.{u32,s32,f32,f64}",
    "set.{eq,ltu}.{u32,f16}.f16",
    "set.{eq,ltu}.{u32,f16x2}.f16x2",
    # Conversion
    "cvt.{u8,s8,u16,s16,u32,s32,u64,s64}.{u8,s8,u16,s16,u32,s32,u64,s64}",
    "cvt.sat.u8.{s8,u16,s16,u32,s32,u64,s64}",
    "cvt.sat.s8.{u8,u16,s16,u32,s32,u64,s64}",
    "cvt.sat.u16.{s8,s16,u32,s32,u64,s64}",
    "cvt.sat.s16.{u16,u32,s32,u64,s64}",
    "cvt.sat.u32.{s8,s16,s32,u64,s64}",
    "cvt.sat.u64.{s8,s16,s32,s64}",
    "cvt.sat.s64.u64",
    "cvt.{rni,rzi,rmi,rpi}{,.ftz}.{u8,s8,u16,s16,u32,s32,u64,s64}.f32",
    "cvt.{rni,rzi,rmi,rpi}.{u8,s8,u16,s16,u32,s32,u64,s64}.{f16,f64}",
    "cvt.{rni,rzi,rmi,rpi}.{u16,s16,u32,s32,u64,s64}.bf16",
    "cvt.{rn,rz,rm,rp}{,.sat}.f32.{u8,s8,u16,s16,u32,s32,u64,s64}",
    "cvt.{rn,rz,rm,rp}.{f16,f64}.{u8,s8,u16,s16,u32,s32,u64,s64}",
    "cvt.{rn,rz,rm,rp}.bf16.{u16,s16,u32,s32,u64,s64}",
    "cvt{,.sat}.{f32,f64}.f16",
    "cvt.f32.bf16",
    "cvt.{rn,rz,rm,rp}.bf16.f16",
    "cvt.{rn,rz,rm,rp}.f16.bf16",
    "cvt.f64.bf16",
    "cvt{,.ftz}{,.sat}.f64.f32",
    "cvt.{rn,rz,rm,rp}{,.ftz}{,.sat}.f32.f64",
    "cvt.{rn,rz}{,.relu}{,.satfinite}.{f16,bf16}.f32",
    "cvt.{rm,rp}.f16.f32",
    "cvt.rn.ftz.f16.f32",
    "cvt.{rn,rz}{,.relu}{,.satfinite}.{f16x2,bf16x2}.f32",
    "cvt.{rn,rz,rm,rp}.{f16,bf16}.f64",
    "cvt.rna{,.satfinite}.tf32.f32",
    "cvt.{rn,rz}{,.relu}.tf32.f32",
    "cvt.{rni,rzi,rmi,rpi}{,.ftz}.f32.f32",
    "cvt.{rni,rzi,rmi,rpi}.{f16.f16,f64.f64}",
    "cvt{,.ftz}.sat.f32.f32",
    "cvt.ftz.f32.f32",
    "cvt.rn.satfinite{,.relu}.{e4m3x2,e5m2x2}.{f32,f16x2}",
    "cvt.rn{,.relu}.f16x2.{e4m3x2,e5m2x2}",
]

APPROXIMATE_PATTERNS = [
    "{rcp,sqrt,rsqrt}.approx{,.ftz}.f32",
    "div.{approx,full}{,.ftz}.f32",
    "{ex2,lg2,sin,cos}.approx{,.ftz}.f32",
    "tanh.approx.{f32,f16,bf16,f16x2,bf16x2}",
    "ex2.approx.{f16,f16x2}",
    "ex2.approx.ftz.{bf16,bf16x2}",
    "{rcp,rsqrt}.approx.ftz.f64",
    "rsqrt.approx.f64",
]

WARP_CASES = {
    **{
        f"shfl.sync.{mode}.b32": f"shfl.sync.{mode}.b32 %d|%p, %a, %b, %c, %mask;"
        for mode in ("idx", "up", "down", "bfly")
    },
    **{
        f"vote.sync.{mode}.pred": f"vote.sync.{mode}.pred %p, %q, %mask;"
        for mode in ("all", "any", "uni")
    },
    "vote.sync.ballot.b32": "vote.sync.ballot.b32 %d, %q, %mask;",
    "activemask.b32": "activemask.b32 %d;",
    "elect.sync": "elect.sync %d|%p, %mask;",
    **{
        opcode: f"{opcode} %d, %a, %mask;"
        for opcode in (
            *(f"redux.sync.{op}.{kind}" for op in ("add", "min", "max") for kind in ("u32", "s32")),
            *(f"redux.sync.{op}.b32" for op in ("and", "or", "xor")),
        )
    },
}
"""Warp instructions as PTX: %a and %c are 32-bit values of a lane, %b a lane number or distance,
%q a predicate, %mask the lanes that take part, %d and %p the results."""


def expand(pattern: str) -> list[str]:
    """All opcodes of a pattern: "a.{b,c}" gives a.b and a.c."""
    parts = [part.split(",") for part in re.split(r"[{}]", pattern)]
    # Outside braces there is no comma, so those parts have one choice.
    return ["".join(choice) for choice in product(*parts)]


def exact_opcodes() -> list[str]:
    """Opcodes whose results must have the device's bits."""
    return [opcode for pattern in EXACT_PATTERNS for opcode in expand(pattern)]


def approximate_opcodes() -> list[str]:
    """Opcodes of which only the error is measured."""
    return [opcode for pattern in APPROXIMATE_PATTERNS for opcode in expand(pattern)]
