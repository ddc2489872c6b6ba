"""Pieces of kernels on tensor memory, for tests: bodies for `ptx_harness.run` with 128 threads.

Every kernel gets its matrices as bytes of global memory in the order in which shared memory is to
hold them, from shared address 1024 on (`tiles`). q0 is that memory, q1 the output, uint32[128, n].
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from ptx_harness import Array, aligned, run

from nvfp4.emulator import LaunchReport

BASE = 1024
"""The first shared address."""
BARRIER, SLOT = BASE, BASE + 16
"""The mbarrier, and the word that tcgen05.alloc writes."""
TILES = BASE + 1024
"""Where the matrices lie."""

START = f"""
setp.eq.u32 %p1, %r0, 0; setp.lt.u32 %p2, %r0, 32;
mov.u32 %r40, {SLOT}; mov.u32 %r41, {BARRIER};
@!%p2 bra ALLOCATED;
tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%r40], COLUMNS;
tcgen05.relinquish_alloc_permit.cta_group::1.sync.aligned;
ALLOCATED:
@!%p1 bra READY;
mbarrier.init.shared.b64 [%r41], 1;
READY:
"""
FILL_TILES = f"""
mov.u32 %r42, %r0;
FILLING: setp.ge.u32 %p3, %r42, WORDS; @%p3 bra FILLED;
mul.wide.u32 %d1, %r42, 16; add.u64 %d1, %q0, %d1;
ld.global.v4.u32 {{%r43, %r44, %r45, %r46}}, [%d1];
shl.b32 %r47, %r42, 4;
st.shared.v4.u32 [%r47+{TILES}], {{%r43, %r44, %r45, %r46}};
add.u32 %r42, %r42, 128; bra FILLING;
FILLED: fence.proxy.async.shared::cta; bar.sync 0;
"""
FILL = f"""{FILL_TILES}
ld.shared.u32 %r1, [%r40];
shr.u32 %r2, %r0, 5; shl.b32 %r2, %r2, 21; add.u32 %r2, %r2, %r1;
"""
"""%r1: the address of tensor memory, %r2: of the warp's lanes there."""
COMMIT = """tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [%r41];"""
WAIT = """
WAITING: mbarrier.try_wait.parity.shared.b64 %p4, [%r41], 0; @!%p4 bra WAITING;
tcgen05.fence::after_thread_sync;
"""
END = """
bar.sync 0;
@!%p2 bra FREED;
tcgen05.dealloc.cta_group::1.sync.aligned.b32 %r1, COLUMNS;
FREED:
"""


def registers(count: int, first: int = 0, name: str = "v") -> str:
    """A braced list."""
    return "{" + ", ".join(f"%{name}{first + i}" for i in range(count)) + "}"


def read_back(count: int, column: int = 0) -> str:
    """Each thread stores `count` words of its lane to q1."""
    names = registers(count)
    return f"""
tcgen05.ld.sync.aligned.32x32b.x{count}.b32 {names}, [%r2+{column}];
tcgen05.wait::ld.sync.aligned;
mul.wide.u32 %d2, %r0, {4 * count}; add.u64 %d2, %q1, %d2;
{"".join(f"st.global.u32 [%d2+{4 * i}], %v{i};" for i in range(count))}
"""


def by_one_thread(text: str) -> str:
    """What thread 0 alone executes."""
    return f"@!%p1 bra ISSUED;\n{text}\nISSUED:\n"


def descriptor(
    address: int, leading: int = 0, stride: int = 0, swizzle: int = 0, version: int = 1
) -> int:
    """A shared memory descriptor; offsets in bytes."""
    return (
        address >> 4 & 0x3FFF
        | (leading >> 4) << 16
        | (stride >> 4) << 32
        | version << 46
        | swizzle << 61
    )


def kernel(middle: str, columns: int = 32, words: int = 0) -> str:
    """A body: allocation, filling of shared memory, `middle`, and the end."""
    text = f".reg .b32 %v<128>;{START}{FILL}{middle}{END}"
    return text.replace("COLUMNS", str(columns)).replace("WORDS", str(words))


def execute(
    middle: str, tiles: Sequence[Array], out: Array, columns: int = 32, **options: Any
) -> LaunchReport:
    """Run such a kernel on matrices that lie one after the other in shared memory."""
    data = np.concatenate([np.ascontiguousarray(each).view(np.uint8).reshape(-1) for each in tiles])
    data = np.pad(data, (0, -data.size % 16))
    body = kernel(middle, columns, data.size // 16)
    shared = TILES + data.size + 1024  # some of it stays unwritten
    return run(body, aligned(data), out, block=128, shared_bytes=shared - BASE, **options)


def core_matrices(codes: Array) -> Array:
    """Rows of bytes, uint8[rows, 32], in chunks of 16 without a swizzle: leading offset 128, stride
    offset 256."""
    ordered = codes.reshape(codes.shape[0] // 8, 8, codes.shape[1] // 16, 16).transpose(0, 2, 1, 3)
    return np.ascontiguousarray(ordered).reshape(-1)


def scaled(sizes: Sequence[int], bits: int, group: int = 1, column: int = 96) -> str:
    """Copies the scales of a and b, which lie behind both, to tensor memory, for a product of %d5
    and %d6 with %r3, %r4 and the instruction descriptor %r5. sizes: bytes of each."""
    starts = TILES + np.cumsum([0, *sizes])
    copy = f"tcgen05.cp.cta_group::{group}.32x128b.warpx4"
    return f"""
mov.b64 %d3, {descriptor(starts[2], 0, 128)}; mov.b64 %d4, {descriptor(starts[3], 0, 128)};
add.u32 %r3, %r1, {column}; add.u32 %r4, %r1, {column + 4}; setp.ne.u32 %p5, %r0, %r0;
{copy} [%r3], %d3; {copy} [%r4], %d4;
mov.b64 %d5, {descriptor(starts[0], 128, 256)}; mov.b64 %d6, {descriptor(starts[1], 128, 256)};
mov.b32 %r5, {bits};"""


E2M1 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6])
E2M1 = np.concatenate([E2M1, -E2M1])


def nibbles(codes: Array) -> Array:
    return np.stack((codes & 15, codes >> 4), axis=-1).reshape(len(codes), -1)


def in_lanes(scales: Array) -> Array:
    """Scales [rows, 4] as the 512 bytes that tcgen05.cp.32x128b.warpx4 takes."""
    rows = np.zeros((128, 4), np.uint8)
    rows[: len(scales)] = scales
    return rows.reshape(4, 32, 4).transpose(1, 0, 2)


F16 = 1 << 4 | 16 // 8 << 17 | 128 // 16 << 24
"""The instruction descriptor of kind::f16, M = 128, N = 16, sums in f32."""


def matrices(rows: int = 128, columns: int = 16) -> tuple[Array, Array]:
    """float16[rows, 16] and float16[columns, 16] of small integers."""
    rng = np.random.default_rng(7)
    return tuple(  # type: ignore[return-value]
        rng.integers(-8, 8, (count, 16)).astype(np.float16) for count in (rows, columns)
    )


def packed(values: Array) -> Array:
    """Rows of 32 bytes, of any type, as core matrices."""
    return core_matrices(np.ascontiguousarray(values).view(np.uint8).reshape(len(values), -1))
