"""What a call is measured against: an empty kernel and a plain read of the same bytes."""

# mypy: allow-untyped-defs
# No postponed annotations here: CuTe DSL evaluates those of its functions.

import functools
import operator

import cutlass
import cutlass.cute as cute
import torch
from cutlass import Int32, Int64, Uint32
from cutlass._mlir.dialects import llvm
from cutlass.cutlass_dsl import T, dsl_user_op

threads = 512


@dsl_user_op
def xor_of_16_bytes(address, *, loc=None, ip=None):
    """The exclusive or of the four words at a 64-bit address."""
    return Uint32(
        llvm.inline_asm(
            T.i32(),
            [address.ir_value(loc=loc, ip=ip)],
            "{\n.reg .b32 x, y, z, w;\n"
            "ld.global.nc.L1::no_allocate.v4.b32 {x, y, z, w}, [$1];\n"
            "xor.b32 x, x, y;\nxor.b32 z, z, w;\nxor.b32 $0, x, z;\n}",
            "=r,l",
            has_side_effects=True,
            is_align_stack=False,
            asm_dialect=llvm.AsmDialect.AD_ATT,
            loc=loc,
            ip=ip,
        )
    )


@dsl_user_op
def st_global_u32(address, value, *, loc=None, ip=None):
    """Stores a word at a 64-bit address."""
    llvm.inline_asm(
        None,
        [address.ir_value(loc=loc, ip=ip), value.ir_value(loc=loc, ip=ip)],
        "st.global.b32 [$0], $1;",
        "l,r",
        has_side_effects=True,
        is_align_stack=False,
        asm_dialect=llvm.AsmDialect.AD_ATT,
        loc=loc,
        ip=ip,
    )


@cute.kernel
def empty_kernel():
    """Nothing."""


@cute.jit
def empty():
    """Launches the empty kernel."""
    empty_kernel().launch(grid=(1, 1, 1), block=(32, 1, 1))


def xor_of_loads(address, count):
    """The exclusive or of count pieces of 16 bytes, a CTA's width apart."""
    values = [xor_of_16_bytes(address + i * threads * 16) for i in range(count)]
    return functools.reduce(operator.xor, values)


@cute.kernel
def read_kernel(source: Int64, sink: Int64, count: cutlass.Constexpr):
    """Each thread reads count times 16 bytes. The store depends on them, so that no load is
    removed.
    """
    thread, _, _ = cute.arch.thread_idx()
    block, _, _ = cute.arch.block_idx()
    value = xor_of_loads(source + (Int64(block) * count * threads + Int64(thread)) * 16, count)
    if value == Uint32(0x12345679):
        st_global_u32(sink, value)


@cute.jit
def read(source: Int64, sink: Int64, blocks: Int32, count: cutlass.Constexpr):
    """Launches the plain read."""
    read_kernel(source, sink, count).launch(grid=(blocks, 1, 1), block=(threads, 1, 1))


class Baselines:
    """The compiled baselines, and 2 GiB of random bytes for them to read.

    gbps: the bandwidth of the fastest read of all of it.
    """

    def __init__(self) -> None:
        self.empty = cute.compile(empty)
        self._read = {
            count: cute.compile(read, Int64(0), Int64(0), Int32(0), count) for count in (1, 4)
        }
        self._sink = torch.zeros(4, dtype=torch.int32, device="cuda")
        self._buffer = torch.randint(0, 255, (2 << 30,), dtype=torch.uint8, device="cuda")
        self.gbps = max(self._bandwidth_gbps(count) for count in self._read)

    def read(self, nbytes: int, count: int = 1) -> None:
        """Reads nbytes, rounded up to whole CTAs, at most 2 GiB: count loads a thread."""
        blocks = -(-nbytes // (16 * threads * count))
        self._read[count](self._buffer.data_ptr(), self._sink.data_ptr(), blocks)

    def _bandwidth_gbps(self, count: int) -> float:
        """Of the fastest of forty reads of the whole buffer."""
        best_ms = float("inf")
        for _ in range(40):
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            start.record()
            self.read(self._buffer.numel(), count)
            end.record()
            torch.cuda.synchronize()
            best_ms = min(best_ms, start.elapsed_time(end))
        return self._buffer.numel() / best_ms / 1e6

    def floor_us(self, nbytes: int, empty_us: float) -> float:
        """The time of nbytes at that bandwidth, plus an empty kernel's."""
        return nbytes / self.gbps / 1e3 + empty_us
