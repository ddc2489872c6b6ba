#!POPCORN leaderboard nvfp4_gemv
#!POPCORN gpu NVIDIA
"""Batched NVFP4 matrix-vector product in CuTe DSL, for sm_80 to sm_120.

A thread decodes a piece of b once for a few rows. Block sums are exact: f16x2 multiply-adds from
sm_100 on, integer dot products before. Scaled sums are added in float32.
"""

# mypy: allow-untyped-defs

import functools
import itertools
import os
from dataclasses import dataclass

import cutlass
import cutlass.cute as cute
import torch
from cutlass import Float32, Int32, Int64, Uint32
from cutlass._mlir.dialects import llvm
from cutlass.cutlass_dsl import dsl_user_op, select_

from task import input_t, output_t

n_padded = 128


def check(condition: bool, message: str) -> None:
    if not condition:
        raise ValueError(message)


def ptx(text, *results, effects=False):
    """PTX as a function; several results are a list."""
    letters = {Float32: "f", Int64: "l", Int32: "r", Uint32: "r"}

    @dsl_user_op
    def instruction(*arguments, loc=None, ip=None):
        where = {"loc": loc, "ip": ip}
        kinds = [kind.mlir_type for kind in results]
        constraints = [f"={letters[kind]}" for kind in results]
        constraints += [letters[type(argument)] for argument in arguments]
        out = llvm.inline_asm(
            llvm.StructType.get_literal(kinds) if kinds[1:] else kinds[0] if kinds else None,
            [argument.ir_value(**where) for argument in arguments],
            text,
            ",".join(constraints),
            has_side_effects=effects,
            **where,
        )
        if kinds[1:]:
            parts = [llvm.extractvalue(kind, out, [i], **where) for i, kind in enumerate(kinds)]
            return [results[0](part) for part in parts]
        return results[0](out) if kinds else None

    return instruction


# A nibble of $3 selects a byte of $2:$1 or, with its top bit, replicates that byte's sign.
prmt = ptx("prmt.b32 $0, $1, $2, $3;", Uint32)
dp4a = ptx("dp4a.u32.s32 $0, $1, $2, $3;", Uint32)
mov_f32_b32 = ptx("mov.b32 $0, $1;", Float32)
mul_f16x2 = ptx("mul.rn.f16x2 $0, $1, $2;", Uint32)
fma_f32 = ptx("fma.rn.f32 $0, $1, $2, $3;", Float32)
fma_f16x2 = ptx("fma.rn.f16x2 $0, $1, $2, $3;", Uint32)
# $7 to $10 plus the halves of $4 times a half of $6, and of $5 times the other.
fma_f32_f16x2 = ptx(
    "{\n.reg .b16 a0, a1, a2, a3, b0, b1;\n"
    "mov.b32 {a0, a1}, $4;\nmov.b32 {a2, a3}, $5;\nmov.b32 {b0, b1}, $6;\n"
    "fma.rn.f32.f16 $0, a0, b0, $7;\nfma.rn.f32.f16 $1, a1, b0, $8;\n"
    "fma.rn.f32.f16 $2, a2, b1, $9;\nfma.rn.f32.f16 $3, a3, b1, $10;\n}",
    *[Float32] * 4,
)
cvt_f16x2_e2m1x2 = ptx(
    "{\n.reg .b8 p0, p1, p2, p3;\nmov.b32 {p0, p1, p2, p3}, $4;\n"
    "cvt.rn.f16x2.e2m1x2 $0, p0;\ncvt.rn.f16x2.e2m1x2 $1, p1;\n"
    "cvt.rn.f16x2.e2m1x2 $2, p2;\ncvt.rn.f16x2.e2m1x2 $3, p3;\n}",
    *[Uint32] * 4,
)
cvt_f32_f16x2 = ptx(
    "{\n.reg .b16 low, high;\nmov.b32 {low, high}, $2;\n"
    "cvt.f32.f16 $0, low;\ncvt.f32.f16 $1, high;\n}",
    *[Float32] * 2,
)
# A shift before the second would be an instruction.
cvt_f16x2_e4m3x4 = ptx(
    "{\n.reg .b16 low, high;\nmov.b32 {low, high}, $2;\n"
    "cvt.rn.f16x2.e4m3x2 $0, low;\ncvt.rn.f16x2.e4m3x2 $1, high;\n}",
    *[Uint32] * 2,
)
st_global_f16 = ptx(
    "{\n.reg .b16 half;\ncvt.rn.f16.f32 half, $1;\nst.global.b16 [$0], half;\n}", effects=True
)


def ld_words(address, count, hints):
    names = ", ".join(f"${i}" for i in range(count))
    text = f"ld.global.nc{hints}.v{count}.b32 {{{names}}}, [${count}];"
    return ptx(text, *[Uint32] * count, effects=True)(address)


def ld_scales(address, count, hints):
    text = f"ld.global.nc{hints}.{'u16' if count == 2 else 'b32'} $0, [$1];"
    return ptx(text, Uint32, effects=True)(address)


class Decoder:
    """add works on two blocks: four words and a pair of scales of a, times b's, which vector and
    factors have prepared. A quarter of a product of scales is exact in f16.

    zero: unknown to the compiler, so that constants added to it stay in registers.
    """

    def __init__(self, zero):
        self.table = zero + Uint32(0x03020100), Uint32(0x0C080604)

    def pairs(self, scales):
        """A piece's scales as f16x2."""
        return cvt_f16x2_e4m3x4(scales)

    def factors(self, pair):
        return mul_f16x2(pair, Uint32(0x34003400))


class IntegerDecoder(Decoder):
    """Integer dot products of doubled values."""

    def zero(self):
        return Float32(0.0)

    def total(self, value):
        return value

    def magnitudes(self, word):
        """Eight bytes of positive elements, 0 for others; then of negative ones."""
        signs = word, word ^ Uint32(0x88888888)
        return [[prmt(*self.table, sign), prmt(*self.table, sign >> 16)] for sign in signs]

    def vector(self, words):
        out = []
        top = Uint32(0x80808080)
        for word in words:
            out += [((p | top) - n) ^ top for p, n in zip(*self.magnitudes(word), strict=True)]
        return out

    def add(self, value, words, pair, b, factors):
        products = cvt_f32_f16x2(mul_f16x2(pair, factors))
        for j, product in enumerate(products):
            block = self.block(words[2 * j : 2 * j + 2], b[4 * j : 4 * j + 4])
            value = fma_f32(block, product, value)
        return value

    def block(self, words, b):
        """Four times the block sum."""
        # 1.5 * 2**23: adding an integer to its bits adds it to its value.
        sums = [Uint32(0x4B400000)] * 2
        for i, word in enumerate(words):
            for sign, parts in enumerate(self.magnitudes(word)):
                for part, b_part in zip(parts, b[2 * i : 2 * i + 2], strict=True):
                    sums[sign] = dp4a(part, b_part, sums[sign])
        return mov_f32_b32(sums[0]) - mov_f32_b32(sums[1])


class IntegerDecoderBeforeE4M3(IntegerDecoder):
    def pairs(self, scales):
        """By shifts; a product corrects the exponent's bias."""
        bits = prmt(scales, Uint32(0), Uint32(0x1404))
        magnitude = (bits & Uint32(0x7F007F00)) >> 1
        nan = (magnitude + Uint32(0x00800080)) & Uint32(0x40004000)
        value = mul_f16x2(magnitude | bits & Uint32(0x80008000), Uint32(0x5C005C00))
        return [value | nan | (nan - (nan >> 5))]


class HalfDecoder(Decoder):
    """f16x2 multiply-adds, exact: a half adds 8 multiples of 1/4 up to 36."""

    def zero(self):
        return [Float32(0.0)] * 4

    def total(self, values):
        return (values[0] + values[1] + (values[2] + values[3])) * Float32(4.0)

    def vector(self, words):
        return [pair for word in words for pair in cvt_f16x2_e2m1x2(word)]

    def add(self, values, words, pair, b, factors):
        blocks = self.block(words[:2], b[:8]), self.block(words[2:], b[8:])
        return fma_f32_f16x2(*blocks, mul_f16x2(pair, factors), *values)

    def block(self, words, b):
        """The sums over even and over odd elements."""
        value = Uint32(0)
        for a_pair, b_pair in zip(self.vector(words), b, strict=True):
            value = fma_f16x2(a_pair, b_pair, value)
        return value


@dataclass(frozen=True)
class Configuration:
    threads_k: int  # along k
    groups: int  # of rows, in a CTA
    rows: int  # a thread works on at once
    pieces: int = 1  # of k a thread loads at once
    bytes: int = 16  # of a in a piece; 32 from sm_100 on only
    resident: int = 1024  # threads whose registers must fit a multiprocessor

    def __post_init__(self) -> None:
        width, rows = self.threads_k, self.rows
        threads, lanes = width * self.groups, min(width, 32)
        for rule, holds in {
            f"a CTA of {threads} threads is not whole warps": threads % 32 == 0,
            f"resident must be at most 1024 and at least the {threads} threads of a CTA": threads
            <= self.resident
            <= 1024,
            "threads_k must be 8, 16 or a multiple of 32": width in (8, 16) or width % 32 == 0,
            f"rows must be a power of two of at most {lanes}": 0 < rows <= lanes
            and not rows & (rows - 1),
            "a piece is 16 or 32 bytes": self.bytes in (16, 32),
        }.items():
            check(holds, f"{self}: {rule}")


class Gemv:
    """ragged: rows past the end repeat the last one and are not stored."""

    def __init__(self, k: int, configuration: Configuration, decoder, ragged: bool):
        self.k_packed = k // 2
        self.configuration = configuration
        self.decoder = decoder
        self.ragged = ragged
        self.pieces_k = self.k_packed // configuration.bytes
        self.words = configuration.bytes // 4
        self.blocks = configuration.bytes // 8
        self.lanes = min(32, configuration.threads_k)
        self.warps_k = configuration.threads_k // self.lanes
        self.rows_cta = configuration.groups * configuration.rows
        step = configuration.threads_k * configuration.pieces
        self.steps = -(-self.pieces_k // step)
        self.partial = self.steps * step != self.pieces_k

    @cute.jit
    def __call__(self, a: Int64, b: Int64, sfa: Int64, sfb: Int64, c: Int64, m: Int32, l: Int32):
        tiles_m = (m + self.rows_cta - 1) // self.rows_cta
        depth = (l + 65534) // 65535
        height = (l + depth - 1) // depth
        self.kernel(a, b, sfa, sfb, c, m, l).launch(
            grid=(tiles_m, height, depth),
            block=(self.configuration.threads_k, self.configuration.groups, 1),
            # Caps the registers; without min_blocks_per_mp loads would wait for registers.
            max_number_threads=(self.configuration.resident, 1, 1),
            min_blocks_per_mp=1,
        )

    def places(self, thread, step):
        """Offsets of a thread's pieces in a row and its scales, clamped, and whether inside."""
        for i in range(self.configuration.pieces):
            piece = (step * self.configuration.pieces + i) * self.configuration.threads_k + thread
            inside = piece < self.pieces_k
            if self.partial:
                piece = cutlass.min(piece, self.pieces_k - 1)
            yield Int64(piece * self.configuration.bytes), Int64(piece * self.blocks), inside

    def load(self, address, place, row=True):
        """Words and scales of a piece; b's scales are zero past the end."""
        byte, scale, inside = place
        hints = ".L1::no_allocate" if row else ""
        last = ".L2::evict_first" if row and self.words == 8 else ""
        words = ld_words(address[0] + byte, self.words, hints + last)
        scales = ld_scales(address[1] + scale, self.blocks, hints)
        if self.partial and not row:
            scales = Int32(select_(inside, scales, Uint32(0)))
        return [*words, scales]

    def multiply(self, decoder, sums, loads, addresses=None, thread=None, step=None):
        """Adds a step; issues the loads of the next as registers become free."""
        sums, ahead = list(sums), []
        places = [None] * len(loads) if step is None else self.places(thread, step)
        for (*rows, vector), place in zip(loads, places, strict=True):
            quads = [
                (j, decoder.vector(vector[4 * j : 4 * j + 4]), decoder.factors(pair))
                for j, pair in enumerate(decoder.pairs(vector[-1])[: self.words // 4])
            ]
            next_rows, next_vector = [], place and self.load(addresses[-1], place, row=False)
            for r, row in enumerate(rows):
                pairs = decoder.pairs(row[-1])
                for j, b, factors in quads:
                    words = row[4 * j : 4 * j + 4]
                    sums[r] = decoder.add(sums[r], words, pairs[j], b, factors)
                next_rows.append(place and self.load(addresses[r], place))
            ahead.append([*next_rows, next_vector])
        return sums, ahead

    def reduce(self, sums, lane):
        """Sums over lanes; lane i gets row i // (lanes // rows)."""
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
        loads = [
            [self.load(address, place, address is not addresses[-1]) for address in addresses]
            for place in list(self.places(thread, 0))
        ]
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
        """(a, sfa) of each row, then (b, sfb)."""
        first = Int64(batch) * Int64(m)
        scales_k = self.k_packed // 8
        indices = [row + r for r in range(self.configuration.rows)]
        if self.ragged:
            indices = [cutlass.min(index, m - 1) for index in indices]
        starts = [first + Int64(index) for index in indices]
        padded = Int64(batch) * n_padded
        words = [a + start * self.k_packed for start in starts]
        scales = [sfa + start * scales_k for start in starts]
        last = b + padded * self.k_packed, sfb + padded * scales_k
        return [*zip(words, scales, strict=True), last]


# {(least compute capability, least memory_gbps): {(m, k, l): ...}}: on an H100 and an H200; 100 by
# counting instructions.
tables = {
    (80, 0): {
        (7168, 16384, 1): Configuration(512, 1, 2),
        (4096, 7168, 8): Configuration(224, 1, 2),
        (7168, 2048, 4): Configuration(32, 4, 4),
    },
    (80, 30): {
        (7168, 16384, 1): Configuration(512, 1, 4),
        (4096, 7168, 8): Configuration(224, 1, 4),
        (7168, 2048, 4): Configuration(32, 2, 4),
    },
    (100, 0): {
        (7168, 16384, 1): Configuration(32, 1, 8, 1, 32, 384),
        (4096, 7168, 8): Configuration(8, 4, 8, 1, 32, 384),
        (7168, 2048, 4): Configuration(8, 4, 8, 1, 32, 384),
    },
}


@functools.cache
def compute_capability() -> int:
    """90 for sm_90a. Raises RuntimeError without a device and CUTE_DSL_ARCH."""
    target = os.environ.get("CUTE_DSL_ARCH")
    if not target and not torch.cuda.is_available():
        raise RuntimeError("no CUDA device, and CUTE_DSL_ARCH names none to emulate")
    digits = target or str(torch.cuda.get_device_capability())
    return int("".join(filter(str.isdigit, digits)))


@functools.cache
def memory_gbps() -> float:
    """For each multiprocessor; 0 where torch does not tell."""
    device = torch.cuda.is_available() and torch.cuda.get_device_properties()
    if not hasattr(device, "memory_bus_width"):
        return 0.0
    return device.memory_clock_rate * device.memory_bus_width / 4e6 / device.multi_processor_count


def decoder_for(capability: int):
    check(capability >= 80, f"this kernel needs sm_80 or later, not sm_{capability}")
    if capability >= 100:
        return HalfDecoder
    return IntegerDecoder if capability >= 89 else IntegerDecoderBeforeE4M3


def configuration_for(m: int, k: int, l: int, capability: int) -> Configuration:
    fits = [key for key in tables if key[0] <= capability and key[1] <= memory_gbps()]
    table = tables[max(fits)] if fits else {}
    return table.get((m, k, l)) or rule(m, k, l, capability)


def widths(pieces: int) -> list[int]:
    """Threads that can share a row."""
    return [width for width in (8, 16, *range(32, 1025, 32)) if width < pieces + 32]


def rule(m: int, k: int, l: int, capability: int) -> Configuration:
    """A row takes one step of at most 512 threads before sm_100, about four from there on. CTAs
    shrink while multiprocessors would stay idle."""
    half = capability >= 100
    pieces = k // 2 // (32 if half else 16)
    aim = max(8, min(352, pieces // 4) if half else min(512, pieces))

    def cost(width: int) -> tuple[float, int]:
        steps = -(-pieces // width)
        idle = steps * width / pieces
        return (idle > 1.15 if half else idle * (1.3 if steps > 1 else 1)), abs(width - aim)

    threads_k = min((width for width in widths(pieces) if width <= aim + 31), key=cost)
    least = max(1, 32 // threads_k)
    groups = max(least, (64 if half else 128) // threads_k)
    rows = 8 if half else 4 if threads_k < 128 or memory_gbps() >= 30 else 2
    while (groups > least or rows > 1) and m * l < 264 * groups * rows:
        groups, rows = (groups // 2, rows) if groups > least else (groups, rows // 2)
    if half:
        return Configuration(threads_k, groups, rows, bytes=32, resident=384)
    steps = -(-pieces // threads_k)
    return Configuration(threads_k, groups, rows, pieces=1 if steps % 2 else 2)


def configurations(m: int, k: int, l: int, capability: int) -> list[Configuration]:
    """What a search may try: few idle threads, at most 128 bytes of a row in flight a thread."""
    space = [rule(m, k, l, capability)]
    half = capability >= 100
    size, least = (32, 32) if half else (16, 64)
    pieces = k // 2 // size
    for threads_k, count in itertools.product(widths(pieces), (1, 2, 4)):
        step = threads_k * count
        if -(-pieces // step) * step > max(1.2 * pieces, 16) or count * size > 128:
            continue
        for groups, rows in itertools.product((1, 2, 4, 8, 16), (1, 2, 4, 8)):
            # Eight rows need more than the 128 registers that 512 threads leave.
            for resident in ((384,) if rows == 8 else (512, 640)) if half else (1024,):
                if least <= threads_k * groups <= min(resident, 768):
                    space.append(Configuration(threads_k, groups, rows, count, size, resident))
    return list(dict.fromkeys(space))


@functools.cache
def compiled(k: int, configuration: Configuration, capability: int, ragged: bool):
    gemv = Gemv(k, configuration, decoder_for(capability), ragged)
    return cute.compile(gemv, *[Int64(0)] * 5, Int32(0), Int32(0))


@functools.cache
def plan(kinds: tuple, configuration: Configuration | None):
    """The kernel for tensors of these kinds, m and l. Raises ValueError."""
    shape, _, _, device = kinds[0]
    check(len(shape) == 3, f"a must be [m, k//2, l], but is {[*shape]}")
    m, k_packed, l = shape
    k = 2 * k_packed
    check(m > 0 and l > 0, f"m and l must be at least 1, but a is {[*shape]}")
    check(k > 0 and k % 64 == 0, f"k must be a positive multiple of 64, but is {k}")
    check(
        device.type == "cuda" or "CUTE_DSL_ARCH" in os.environ,
        f"the tensors are on {device}: move them to a CUDA device, or emulate one",
    )
    fp4, fp8 = torch.float4_e2m1fn_x2, torch.float8_e4m3fn
    expected = {
        "a": (m, k_packed, fp4),
        "b": (n_padded, k_packed, fp4),
        "sfa": (m, k // 16, fp8),
        "sfb": (n_padded, k // 16, fp8),
        "c": (m, 1, torch.float16),
    }
    for (name, (*sizes, dtype)), kind in zip(expected.items(), kinds, strict=True):
        shape, strides, *where = kind
        check(
            where == [dtype, device],
            f"{name} must be {dtype} on {device}, but is {where[0]} on {where[1]}",
        )
        check([*shape] == [*sizes, l], f"{name} must be {[*sizes, l]} to fit a, but is {[*shape]}")
        rows, columns = sizes
        needed = (columns, 1, rows * columns)
        check(
            all(size == 1 or s == n for size, s, n in zip(shape, strides, needed, strict=True)),
            f"{name} must be stored as {[l, *sizes]} and permuted by (1, 2, 0), "
            f"but has the strides {strides}",
        )
    capability = compute_capability()
    configuration = configuration or configuration_for(m, k, l, capability)
    ragged = m % (configuration.groups * configuration.rows) != 0
    return compiled(k, configuration, capability, ragged), m, l


def gemv(data: input_t, configuration: Configuration | None = None) -> output_t:
    """Fills and returns c. Raises ValueError for tensors it cannot take."""
    a, b, sfa, sfb, _, _, c = data
    tensors = (a, b, sfa, sfb, c)
    kinds = tuple([(t.shape, t.stride(), t.dtype, t.device) for t in tensors])
    kernel, m, l = plan(kinds, configuration)
    pointers = [tensor.data_ptr() for tensor in tensors]
    check(
        (pointers[0] | pointers[1]) % 32 == 0 and (pointers[2] | pointers[3]) % 4 == 0,
        "a and b must begin at a multiple of 32 bytes, the scales at one of 4",
    )
    kernel(*pointers, m, l)
    return c


def custom_kernel(data: input_t) -> output_t:
    return gemv(data)
