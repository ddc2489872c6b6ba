#!POPCORN leaderboard nvfp4_gemv
#!POPCORN gpu NVIDIA
"""Batched NVFP4 matrix-vector product in CuTe DSL, from sm_80 to sm_120.

Every thread owns one piece of k (16 or 32 bytes of a, 32 or 64 elements) for a few rows: it
issues all its loads first, decodes its piece of b once, then turns each row's piece into exact
block sums, scales each sum by its two E4M3 scales in float32 and adds in float32. A warp reduces
its rows by shuffles, the warps of a row through shared memory. One CTA does a few whole rows and
CTAs run in ascending order of memory, so the GPU reads a as one narrow, moving window.

Only the leaf that multiplies a 16-element block depends on the architecture:

- sm_100 and later convert E2M1 to f16 and use f16x2 multiply-adds: a lane sums 8 products, each a
  multiple of 1/4 up to 36, so at most 1152 steps of 1/4, which f16 holds exactly;
- before that a byte permute looks E2M1 up in a table (values doubled, so integers) and an integer
  dot product adds four of them.
"""

# mypy: allow-untyped-defs

from __future__ import annotations

import functools
import itertools
import os
from dataclasses import dataclass
from typing import NamedTuple

import cutlass
import cutlass.cute as cute
import torch
from cutlass import Float32, Int32, Int64, Uint32
from cutlass._mlir.dialects import llvm
from cutlass.cutlass_dsl import T, dsl_user_op, select_

from task import input_t, output_t

elements_per_scale = 16
n_padded = 128


def check(condition: bool, message: str) -> None:
    """Raises ValueError with the message unless the condition holds."""
    if not condition:
        raise ValueError(message)


# PTX instructions, one function each


def _asm(result, arguments, instruction, constraints, effects=False, loc=None, ip=None):
    return llvm.inline_asm(
        result,
        [argument.ir_value(loc=loc, ip=ip) for argument in arguments],
        instruction,
        constraints,
        has_side_effects=effects,
        is_align_stack=False,
        asm_dialect=llvm.AsmDialect.AD_ATT,
        loc=loc,
        ip=ip,
    )


def _words(result, count, loc, ip):
    return [Uint32(llvm.extractvalue(T.i32(), result, [i], loc=loc, ip=ip)) for i in range(count)]


@dsl_user_op
def prmt(low, high, selector, *, loc=None, ip=None):
    """Byte i of the result is byte (nibble i of selector) of high:low; a set top bit of the
    nibble yields that byte's sign instead."""
    return Uint32(
        _asm(T.i32(), [low, high, selector], "prmt.b32 $0, $1, $2, $3;", "=r,r,r,r", loc=loc, ip=ip)
    )


@dsl_user_op
def dp4a(a, b, c, *, loc=None, ip=None):
    """c plus the dot product of the four unsigned bytes of a and the four signed bytes of b."""
    return Uint32(
        _asm(T.i32(), [a, b, c], "dp4a.u32.s32 $0, $1, $2, $3;", "=r,r,r,r", loc=loc, ip=ip)
    )


@dsl_user_op
def cvt_f16x2_e2m1x2(word, *, loc=None, ip=None):
    """The eight E2M1 values of a word as four f16x2 registers."""
    result = _asm(
        llvm.StructType.get_literal([T.i32()] * 4),
        [word],
        "{\n.reg .b8 p0, p1, p2, p3;\nmov.b32 {p0, p1, p2, p3}, $4;\n"
        "cvt.rn.f16x2.e2m1x2 $0, p0;\ncvt.rn.f16x2.e2m1x2 $1, p1;\n"
        "cvt.rn.f16x2.e2m1x2 $2, p2;\ncvt.rn.f16x2.e2m1x2 $3, p3;\n}",
        "=r,=r,=r,=r,r",
        loc=loc,
        ip=ip,
    )
    return _words(result, 4, loc, ip)


@dsl_user_op
def cvt_f32_e4m3x2(pair, *, loc=None, ip=None):
    """The two E4M3 values in the low 16 bits as two f32."""
    result = _asm(
        llvm.StructType.get_literal([T.f32()] * 2),
        [pair],
        "{\n.reg .b16 pair, low, high;\n.reg .b32 both;\ncvt.u16.u32 pair, $2;\n"
        "cvt.rn.f16x2.e4m3x2 both, pair;\nmov.b32 {low, high}, both;\n"
        "cvt.f32.f16 $0, low;\ncvt.f32.f16 $1, high;\n}",
        "=f,=f,r",
        loc=loc,
        ip=ip,
    )
    return [Float32(llvm.extractvalue(T.f32(), result, [i], loc=loc, ip=ip)) for i in range(2)]


@dsl_user_op
def mov_f32x2(low, high, *, loc=None, ip=None):
    """Two f32 as one f32x2 register."""
    return Int64(_asm(T.i64(), [low, high], "mov.b64 $0, {$1, $2};", "=l,f,f", loc=loc, ip=ip))


@dsl_user_op
def mul_f32x2(a, b, *, loc=None, ip=None):
    """a * b in both halves, rounded to nearest."""
    return Int64(_asm(T.i64(), [a, b], "mul.rn.f32x2 $0, $1, $2;", "=l,l,l", loc=loc, ip=ip))


@dsl_user_op
def fma_f32x2(a, b, c, *, loc=None, ip=None):
    """a * b + c in both halves, rounded once."""
    return Int64(
        _asm(T.i64(), [a, b, c], "fma.rn.f32x2 $0, $1, $2, $3;", "=l,l,l,l", loc=loc, ip=ip)
    )


@dsl_user_op
def mul_f16x2(a, b, *, loc=None, ip=None):
    """a * b in both halves, rounded to nearest."""
    return Uint32(_asm(T.i32(), [a, b], "mul.rn.f16x2 $0, $1, $2;", "=r,r,r", loc=loc, ip=ip))


@dsl_user_op
def fma_f16x2(a, b, c, *, loc=None, ip=None):
    """a * b + c in both halves, rounded to nearest."""
    return Uint32(
        _asm(T.i32(), [a, b, c], "fma.rn.f16x2 $0, $1, $2, $3;", "=r,r,r,r", loc=loc, ip=ip)
    )


@dsl_user_op
def add_halves_f32x2(first, second, *, loc=None, ip=None):
    """The sum of the two halves of each of two f16x2 registers, as f32x2."""
    return Int64(
        _asm(
            T.i64(),
            [first, second],
            "{\n.reg .b16 h0, h1, h2, h3;\n.reg .f32 f0, f1, f2, f3;\n.reg .b64 low, high;\n"
            "mov.b32 {h0, h1}, $1;\nmov.b32 {h2, h3}, $2;\n"
            "cvt.f32.f16 f0, h0;\ncvt.f32.f16 f1, h1;\n"
            "cvt.f32.f16 f2, h2;\ncvt.f32.f16 f3, h3;\n"
            "mov.b64 low, {f0, f2};\nmov.b64 high, {f1, f3};\nadd.rn.f32x2 $0, low, high;\n}",
            "=l,r,r",
            loc=loc,
            ip=ip,
        )
    )


@dsl_user_op
def add_f32_of_f32x2(pair, *, loc=None, ip=None):
    """The sum of the halves of an f32x2 register."""
    return Float32(
        _asm(
            T.f32(),
            [pair],
            "{\n.reg .f32 low, high;\nmov.b64 {low, high}, $1;\nadd.rn.f32 $0, low, high;\n}",
            "=f,l",
            loc=loc,
            ip=ip,
        )
    )


@dsl_user_op
def fma_f32(a, b, c, *, loc=None, ip=None):
    """a * b + c, rounded once."""
    return Float32(
        _asm(T.f32(), [a, b, c], "fma.rn.f32 $0, $1, $2, $3;", "=f,f,f,f", loc=loc, ip=ip)
    )


@dsl_user_op
def st_global_f16(address, value, *, loc=None, ip=None):
    """Store an f32 as f16, rounded to nearest, at a 64-bit address."""
    _asm(
        None,
        [address, value],
        "{\n.reg .b16 half;\ncvt.rn.f16.f32 half, $1;\nst.global.b16 [$0], half;\n}",
        "l,f",
        True,
        loc=loc,
        ip=ip,
    )


@dsl_user_op
def mov_f32_b32(word, *, loc=None, ip=None):
    """The float with these bits."""
    return Float32(_asm(T.f32(), [word], "mov.b32 $0, $1;", "=f,r", loc=loc, ip=ip))


@dsl_user_op
def ld_global(address, count, hints, *, loc=None, ip=None):
    """count words (1, 2, 4 or 8) of read-only global memory from a 64-bit address."""
    opcode = f"ld.global.nc{hints}" + (f".v{count}.b32" if count > 1 else ".b32")
    names = ", ".join(f"${i}" for i in range(count))
    names = f"{{{names}}}" if count > 1 else names
    kind = T.i32() if count == 1 else llvm.StructType.get_literal([T.i32()] * count)
    constraints = ",".join(["=r"] * count) + ",l"
    result = _asm(
        kind, [address], f"{opcode} {names}, [${count}];", constraints, True, loc=loc, ip=ip
    )
    return [Uint32(result)] if count == 1 else _words(result, count, loc, ip)


@dsl_user_op
def ld_global_u16(address, hints, *, loc=None, ip=None):
    """Two bytes of read-only global memory, zero-extended."""
    return Uint32(
        _asm(
            T.i32(),
            [address],
            "{\n.reg .b16 half;\n" + f"ld.global.nc{hints}.u16 half, [$1];\n"
            "cvt.u32.u16 $0, half;\n}",
            "=r,l",
            True,
            loc=loc,
            ip=ip,
        )
    )


# Decoders: the leaf that multiplies two blocks, 32 elements, of a row of a by those of b.
#
# vector(words)                      four words of b, decoded
# factors(pair)                      two E4M3 scales of b, as add wants them
# add(sum, words, pair, b, factors)  a row's sum with four words of a and their two scales added
# zero(), total(sum)                 a sum to begin with, and a sum as f32


class IntegerDecoder:
    """Table look-up and integer dot product of doubled values.

    zero is a register that is 0 at run time but that the compiler cannot know: constants added to
    it stay in registers instead of being moved there again at every use.
    """

    def __init__(self, zero):
        # The magnitudes 0, .5, 1, 1.5, 2, 3, 4, 6, doubled, one byte each.
        self.low, self.high = zero + Uint32(0x03020100), Uint32(0x0C080604)
        # 1.5 * 2**23 as a float: adding an integer to its bits adds it to its value.
        self.bias = Uint32(0x4B400000)

    def zero(self):
        return Float32(0.0)

    def total(self, value):
        return value

    def magnitudes(self, word):
        """The positive ones of eight elements in two registers of four bytes; the others are 0."""
        return [prmt(self.low, self.high, word), prmt(self.low, self.high, word >> 16)]

    def vector(self, words):
        """Eight registers of four signed bytes."""
        out = []
        top = Uint32(0x80808080)
        for word in words:
            positive = self.magnitudes(word)
            negative = self.magnitudes(word ^ Uint32(0x88888888))
            out += [((p | top) - n) ^ top for p, n in zip(positive, negative, strict=True)]
        return out

    def factors(self, pair):
        """Two scales over 4, because both factors of a product are doubled."""
        return [scale * Float32(0.25) for scale in self.scales(pair)]

    def add(self, value, words, pair, b, factors):
        for j, scale in enumerate(self.scales(pair)):
            block = self.block(words[2 * j : 2 * j + 2], b[4 * j : 4 * j + 4])
            value = fma_f32(block, scale * factors[j], value)
        return value

    def block(self, words, b):
        """Four times the sum over a block: its two words of a, its four registers of b."""
        positive = negative = self.bias
        for i in range(2):
            flipped = words[i] ^ Uint32(0x88888888)
            for part, b_part in zip(self.magnitudes(words[i]), b[2 * i : 2 * i + 2], strict=True):
                positive = dp4a(part, b_part, positive)
            for part, b_part in zip(self.magnitudes(flipped), b[2 * i : 2 * i + 2], strict=True):
                negative = dp4a(part, b_part, negative)
        return mov_f32_b32(positive) - mov_f32_b32(negative)

    def scales(self, pair):
        """Two E4M3 scales in the low half of a word as f32: exponent and mantissa shifted into
        place, the exponent's bias corrected by a product (exact, subnormals included)."""
        values = []
        for shift in (24, 16):
            bits = pair << shift
            magnitude = (bits & Uint32(0x7F000000)) >> 4
            value = mov_f32_b32(magnitude | bits & Uint32(0x80000000)) * Float32(2.0**120)
            nan = mov_f32_b32(Uint32(0x7FC00000))
            values.append(select_(magnitude == Uint32(0x07F00000), nan, value))
        return values


class IntegerDecoderWithE4M3(IntegerDecoder):
    """The same where the E4M3 conversion exists (sm_89 and later)."""

    def scales(self, pair):
        """Two E4M3 scales in the low half of a word as f32."""
        return cvt_f32_e4m3x2(pair)


class HalfDecoder:
    """E2M1 conversion and f16x2 multiply-adds; a sum is one f32x2, a half for each block."""

    def __init__(self, zero):
        del zero

    def zero(self):
        return Int64(0)

    def total(self, value):
        return add_f32_of_f32x2(value)

    def vector(self, words):
        """Sixteen f16x2 registers."""
        return [pair for word in words for pair in cvt_f16x2_e2m1x2(word)]

    def factors(self, pair):
        """Two scales as f32x2."""
        return mov_f32x2(*cvt_f32_e4m3x2(pair))

    def add(self, value, words, pair, b, factors):
        blocks = add_halves_f32x2(self.block(words[:2], b[:8]), self.block(words[2:], b[8:]))
        scales = mul_f32x2(mov_f32x2(*cvt_f32_e4m3x2(pair)), factors)
        return fma_f32x2(blocks, scales, value)

    def block(self, words, b):
        """The sums over even and over odd elements of a block: its two words of a, its eight
        registers of b."""
        a = cvt_f16x2_e2m1x2(words[0]) + cvt_f16x2_e2m1x2(words[1])
        value = mul_f16x2(a[0], b[0])
        for i in range(1, 8):
            value = fma_f16x2(a[i], b[i], value)
        return value


# Kernel


@dataclass(frozen=True)
class Configuration:
    """How the work of one shape is split; every field is a multiple or a power of two.

    threads_k  threads side by side along k: 8, 16 or a multiple of 32
    groups     groups of rows in a CTA; the CTA must be whole warps
    rows       rows a thread works on at once; at most the lanes that share a row
    pieces     pieces of k a thread loads at once
    bytes      bytes of a in a piece: 16, or 32 from sm_100 on
    resident   threads that the registers of a multiprocessor must have room for, at most 1024
    """

    threads_k: int
    groups: int
    rows: int
    pieces: int = 1
    bytes: int = 16
    resident: int = 1024

    def __post_init__(self) -> None:
        threads, lanes = self.threads_k * self.groups, min(self.threads_k, 32)
        check(threads % 32 == 0, f"{self}: a CTA of {threads} threads is not whole warps")
        check(
            threads <= self.resident <= 1024,
            f"{self}: resident must be at most 1024 and at least the {threads} threads of a CTA",
        )
        check(
            self.threads_k in (8, 16) or self.threads_k % 32 == 0,
            f"{self}: threads_k must be 8, 16 or a multiple of 32",
        )
        check(
            0 < self.rows <= lanes and self.rows & (self.rows - 1) == 0,
            f"{self}: rows must be a power of two of at most {lanes}",
        )
        check(self.bytes in (16, 32), f"{self}: a piece is 16 or 32 bytes")


class Addresses(NamedTuple):
    """Where a thread's rows of a and sfa begin, a list each, and the batch's row of b and sfb."""

    a: list
    sfa: list
    b: Int64
    sfb: Int64


class Gemv:
    """The kernel for one k, one configuration and one decoder.

    ragged says that the rows of a CTA do not divide m: rows past the end then repeat the last one
    and are not stored.
    """

    def __init__(self, k: int, configuration: Configuration, decoder, ragged: bool):
        self.k_packed = k // 2
        self.configuration = configuration
        self.decoder = decoder
        self.ragged = ragged
        self.pieces_k = self.k_packed // configuration.bytes
        self.blocks = configuration.bytes * 2 // elements_per_scale
        self.lanes = min(32, configuration.threads_k)
        self.warps_k = configuration.threads_k // self.lanes
        self.rows_cta = configuration.groups * configuration.rows
        step = configuration.threads_k * configuration.pieces
        self.steps = -(-self.pieces_k // step)
        self.partial = self.steps * step != self.pieces_k
        self.hints_a = ".L1::no_allocate"
        if configuration.bytes == 32:
            self.hints_a += ".L2::evict_first"

    @cute.jit
    def __call__(self, a: Int64, b: Int64, sfa: Int64, sfb: Int64, c: Int64, m: Int32, l: Int32):
        tiles_m = (m + self.rows_cta - 1) // self.rows_cta
        depth = (l + 65534) // 65535
        height = (l + depth - 1) // depth
        self.kernel(a, b, sfa, sfb, c, m, l).launch(
            grid=(tiles_m, height, depth),
            block=(self.configuration.threads_k, self.configuration.groups, 1),
            # Caps the registers. Without a minimum of CTAs the compiler would save registers at
            # the price of loads that wait for one another.
            max_number_threads=(self.configuration.resident, 1, 1),
            min_blocks_per_mp=1,
        )

    def place(self, thread, step, i):
        """Where a thread's piece i of a step begins, in bytes of a row of a and of its scales, and
        whether it lies in the row. Past the end it is the last piece, to be cancelled."""
        piece = (step * self.configuration.pieces + i) * self.configuration.threads_k + thread
        inside = piece < self.pieces_k
        if self.partial:
            piece = cutlass.min(piece, self.pieces_k - 1)
        return Int64(piece * self.configuration.bytes), Int64(piece * self.blocks), inside

    def load_words(self, address, hints):
        return ld_global(address, self.configuration.bytes // 4, hints)

    def load_scales(self, address, hints):
        if self.blocks == 2:
            return ld_global_u16(address, hints)
        return ld_global(address, 1, hints)[0]

    def load_vector(self, addresses, place):
        """A piece of b and its scales, which are zero past the end of the row."""
        byte, scale, inside = place
        words = self.load_words(addresses.b + byte, "")
        scales = self.load_scales(addresses.sfb + scale, "")
        return [*words, select_(inside, scales, Uint32(0)) if self.partial else scales]

    def load_row(self, addresses, place, r):
        """A piece of row r of a and its scales."""
        byte, scale, _ = place
        words = self.load_words(addresses.a[r] + byte, self.hints_a)
        return [*words, self.load_scales(addresses.sfa[r] + scale, ".L1::no_allocate")]

    def load(self, addresses, thread):
        """Issue the loads of step 0: for each piece a list for b and one for each row of a."""
        places = [self.place(thread, 0, i) for i in range(self.configuration.pieces)]
        rows = range(self.configuration.rows)
        return [
            [
                *(self.load_row(addresses, place, r) for r in rows),
                self.load_vector(addresses, place),
            ]
            for place in places
        ]

    def multiply(self, decoder, sums, loads, addresses=None, thread=None, step=None):
        """The sums with the products of one step added, and the loads of the given next step, each
        issued as soon as the registers it fills are free."""
        sums, ahead = list(sums), []
        words = self.configuration.bytes // 4
        for i, piece in enumerate(loads):
            *rows, vector = piece
            place = None if step is None else self.place(thread, step, i)
            b, factors = [], []
            for j in range(0, words, 4):
                b.append(decoder.vector(vector[j : j + 4]))
                factors.append(decoder.factors(vector[-1] >> (4 * j) if j else vector[-1]))
            ahead.append([])
            next_vector = None if place is None else self.load_vector(addresses, place)
            for r, row in enumerate(rows):
                for j in range(0, words, 4):
                    pair = row[-1] >> (4 * j) if j else row[-1]
                    sums[r] = decoder.add(sums[r], row[j : j + 4], pair, b[j // 4], factors[j // 4])
                if place is not None:
                    ahead[-1].append(self.load_row(addresses, place, r))
            ahead[-1].append(next_vector)
        return sums, ahead

    def reduce(self, sums, lane):
        """The sums added over the lanes of a row; lane i gets row i // (lanes // rows)."""
        offset = self.lanes // 2
        while len(sums) > 1:
            half = len(sums) // 2
            upper = (lane & offset) != 0
            sums = [
                select_(upper, high, low)
                + cute.arch.shuffle_sync_bfly(select_(upper, low, high), offset)
                for low, high in zip(sums[:half], sums[half:], strict=True)
            ]
            offset //= 2
        total = sums[0]
        while offset:
            total = total + cute.arch.shuffle_sync_bfly(total, offset)
            offset //= 2
        return total

    @cute.kernel
    def kernel(self, a: Int64, b: Int64, sfa: Int64, sfb: Int64, c: Int64, m: Int32, l: Int32):
        rows = self.configuration.rows
        thread, group, _ = cute.arch.thread_idx()
        if cutlass.const_expr(self.configuration.groups == 1):
            group = Int32(0)
        tile, slice_, layer = cute.arch.block_idx()
        _, height, _ = cute.arch.grid_dim()
        batch = cutlass.min(layer * height + slice_, l - 1)
        row = (tile * self.configuration.groups + group) * rows
        addresses = self.addresses(a, b, sfa, sfb, batch, row, m)

        decoder = self.decoder(Uint32(m >> 31))

        loads = self.load(addresses, thread)
        sums = [decoder.zero() for _ in range(rows)]
        if cutlass.const_expr(self.steps > 1):
            for step in cutlass.range(1, self.steps, unroll=1):
                sums, loads = self.multiply(decoder, sums, loads, addresses, thread, step)
        sums, _ = self.multiply(decoder, sums, loads)
        sums = [decoder.total(value) for value in sums]

        lane = thread % self.lanes
        total = self.reduce(sums, lane)
        share = self.lanes // rows
        address_c = c + (Int64(batch) * Int64(m) + Int64(row)) * 2
        if cutlass.const_expr(self.warps_k == 1):
            r = lane // share
            if lane % share == 0 and row + r < m:
                st_global_f16(address_c + Int64(r * 2), total)
        else:
            # [warps_k, groups, rows]: the warps' sums of every row of the CTA.
            shared = cute.arch.alloc_smem(Float32, self.warps_k * self.rows_cta)
            partial = cute.make_tensor(shared, (self.rows_cta, self.warps_k))
            if lane % share == 0:
                partial[group * rows + lane // share, thread // 32] = total
            cute.arch.sync_threads()
            if thread < rows and row + thread < m:
                value = Float32(0.0)
                for warp in cutlass.range_constexpr(self.warps_k):
                    value += partial[group * rows + thread, warp]
                st_global_f16(address_c + Int64(thread * 2), value)

    def addresses(self, a, b, sfa, sfb, batch, row, m):
        """Where the CTA's rows of a and sfa and the batch's b and sfb begin."""
        first = Int64(batch) * Int64(m)
        scales_k = self.k_packed // 8
        indices = [row + r for r in range(self.configuration.rows)]
        if self.ragged:
            indices = [cutlass.min(index, m - 1) for index in indices]
        starts = [first + Int64(index) for index in indices]
        padded = Int64(batch) * n_padded
        return Addresses(
            [a + start * self.k_packed for start in starts],
            [sfa + start * scales_k for start in starts],
            b + padded * self.k_packed,
            sfb + padded * scales_k,
        )


# Configurations: data, one table an architecture, and a rule for every other shape

# {least compute capability: {(m, k, l): configuration}}; 80 holds for all before 100. Measured on
# an H100; from 100 on chosen by counting instructions and CTAs.
tables = {
    80: {
        (7168, 16384, 1): Configuration(512, 1, 2, 1, 16, 1024),
        (4096, 7168, 8): Configuration(224, 1, 2, 1, 16, 1024),
        (7168, 2048, 4): Configuration(32, 4, 4, 1, 16, 1024),
    },
    100: {
        (7168, 16384, 1): Configuration(64, 1, 4, 1, 32, 512),
        (4096, 7168, 8): Configuration(16, 4, 4, 1, 32, 512),
        (7168, 2048, 4): Configuration(8, 4, 4, 1, 32, 512),
    },
}


@functools.cache
def compute_capability() -> int:
    """90 for sm_90a: of CUTE_DSL_ARCH when that is set, else of the present device.

    Raises RuntimeError when there is neither.
    """
    target = os.environ.get("CUTE_DSL_ARCH")
    if target:
        return int("".join(filter(str.isdigit, target)))
    if not torch.cuda.is_available():
        raise RuntimeError(
            "no CUDA device; to emulate one set CUTE_DSL_ARCH, for example to sm_90a"
        )
    major, minor = torch.cuda.get_device_capability()
    return 10 * major + minor


def decoder_for(capability: int):
    """The decoder an architecture can run. Raises ValueError before sm_80."""
    if capability >= 100:
        return HalfDecoder
    if capability >= 89:
        return IntegerDecoderWithE4M3
    if capability >= 80:
        return IntegerDecoder
    raise ValueError(f"this kernel needs sm_80 or later, but the device is sm_{capability}")


def configuration_for(m: int, k: int, l: int, capability: int) -> Configuration:
    """The tuned configuration of a shape, or what the rule makes of it."""
    tuned = tables[100 if capability >= 100 else 80].get((m, k, l))
    return tuned or rule(m, k, l, capability)


def widths(pieces: int) -> list[int]:
    """Counts of threads that can share a row of so many pieces: parts of a warp or whole warps."""
    return [width for width in (8, 16, *range(32, 1025, 32)) if width < pieces + 32]


def rule(m: int, k: int, l: int, capability: int) -> Configuration:
    """Before sm_100 a row is one step if 512 threads allow it: decoding is slow there and short
    CTAs hide it best. From sm_100 on a row is about four steps: there what is done once a thread
    weighs more. Fewer rows a CTA while that leaves multiprocessors without one."""
    half = capability >= 100
    pieces = k // 2 // (32 if half else 16)
    aim = max(8, min(480, pieces // 4) if half else min(512, pieces))

    def cost(width: int) -> tuple[float, int]:
        steps = -(-pieces // width)
        idle = steps * width / pieces
        return (idle > 1.15 if half else idle * (1.3 if steps > 1 else 1)), abs(width - aim)

    threads_k = min((width for width in widths(pieces) if width <= aim + 31), key=cost)
    least = max(1, 32 // threads_k)
    groups = max(least, (64 if half else 128) // threads_k)
    rows = 4 if half or threads_k < 128 else 2
    while (groups > least or rows > 1) and m * l < 264 * groups * rows:
        groups, rows = (groups // 2, rows) if groups > least else (groups, rows // 2)
    if half:
        return Configuration(threads_k, groups, rows, bytes=32, resident=512)
    steps = -(-pieces // threads_k)
    return Configuration(threads_k, groups, rows, pieces=1 if steps % 2 else 2)


def configurations(m: int, k: int, l: int, capability: int) -> list[Configuration]:
    """The search space of a shape: what the rule says, and row splits that leave few threads idle,
    CTAs of 64 to 768 threads, and at most 128 bytes of a row in flight a thread."""
    space = [rule(m, k, l, capability)]
    sizes = ((32, 512), (32, 640)) if capability >= 100 else ((16, 1024),)
    for size, resident in sizes:
        pieces = k // 2 // size
        for threads_k, count in itertools.product(widths(pieces), (1, 2, 4)):
            step = threads_k * count
            if -(-pieces // step) * step > max(1.2 * pieces, 16) or count * size > 128:
                continue
            for groups, rows in itertools.product((1, 2, 4, 8, 16), (1, 2, 4, 8)):
                if 64 <= threads_k * groups <= min(resident, 768):
                    space.append(Configuration(threads_k, groups, rows, count, size, resident))
    return list(dict.fromkeys(space))


# Host


@functools.cache
def compiled(k: int, configuration: Configuration, capability: int, ragged: bool):
    """The kernel, compiled once a process for each combination."""
    gemv = Gemv(k, configuration, decoder_for(capability), ragged)
    return cute.compile(gemv, *[Int64(0)] * 5, Int32(0), Int32(0))


def check_tensor(name, kind, rows: int, columns: int, l: int, dtype, device) -> None:
    """Raises ValueError unless a tensor of this kind, (shape, strides, dtype, device), is stored
    [l, rows, columns] and permuted by (1, 2, 0)."""
    shape, strides, its_dtype, its_device = kind
    check(its_dtype == dtype, f"{name} must be {dtype}, but is {its_dtype}")
    check(
        shape == (rows, columns, l),
        f"{name} must be {[rows, columns, l]} to fit a, but is {[*shape]}",
    )
    check(
        (columns == 1 or strides[1] == 1)
        and (rows == 1 or strides[0] == columns)
        and (l == 1 or strides[2] == rows * columns),
        f"{name} must be stored as {[l, rows, columns]} and permuted by (1, 2, 0), "
        f"but has the strides {strides}",
    )
    check(its_device == device, f"{name} must be where a is, on {device}, but is on {its_device}")


@functools.cache
def plan(kinds: tuple, configuration: Configuration | None):
    """The compiled kernel for tensors (a, b, sfa, sfb, c) of these kinds, and m and l.

    A kind is (shape, strides, dtype, device). Raises ValueError for what the kernel cannot take: a
    k that is no multiple of 64, tensors that disagree, a layout other than the contest's.
    """
    shape, _, _, device = kinds[0]
    check(len(shape) == 3, f"a must be [m, k//2, l], but is {[*shape]}")
    m, k_packed, l = shape
    k = 2 * k_packed
    check(m > 0 and l > 0, f"m and l must be at least 1, but a is {[*shape]}")
    check(k > 0 and k % 64 == 0, f"k must be a positive multiple of 64, but is {k}")
    fp4, fp8 = torch.float4_e2m1fn_x2, torch.float8_e4m3fn
    scales_k = k // elements_per_scale
    check(
        device.type == "cuda" or "CUTE_DSL_ARCH" in os.environ,
        f"the tensors are on {device}: move them to a CUDA device, or emulate one",
    )
    check_tensor("a", kinds[0], m, k_packed, l, fp4, device)
    check_tensor("b", kinds[1], n_padded, k_packed, l, fp4, device)
    check_tensor("sfa", kinds[2], m, scales_k, l, fp8, device)
    check_tensor("sfb", kinds[3], n_padded, scales_k, l, fp8, device)
    check_tensor("c", kinds[4], m, 1, l, torch.float16, device)
    capability = compute_capability()
    configuration = configuration or configuration_for(m, k, l, capability)
    ragged = m % (configuration.groups * configuration.rows) != 0
    return compiled(k, configuration, capability, ragged), m, l


def gemv(data: input_t, configuration: Configuration | None = None) -> output_t:
    """Fill and return c; a configuration, when given, replaces the one from the table.

    Raises ValueError for an input that the kernel cannot take.
    """
    a, b, sfa, sfb, _, _, c = data
    tensors = (a, b, sfa, sfb, c)
    kinds = tuple([(t.shape, t.stride(), t.dtype, t.device) for t in tensors])
    kernel, m, l = plan(kinds, configuration)
    pointers = [tensor.data_ptr() for tensor in tensors]
    if (pointers[0] | pointers[1]) % 32 or (pointers[2] | pointers[3]) % 4 or pointers[4] % 2:
        raise ValueError(
            "a and b must begin at a multiple of 32 bytes and the scales at one of 4, "
            f"but (a, b, sfa, sfb, c) begin at {[hex(pointer) for pointer in pointers]}"
        )
    kernel(*pointers, m, l)
    return c


def custom_kernel(data: input_t) -> output_t:
    """The contest's entry point: fill c, the last of data, with the product and return it."""
    return gemv(data)
