"""Reads of memory by several kernels. No kernel that reads as much can beat the fastest of these.

The kernels are PTX that the driver compiles, so nothing else need be installed.
"""

import math
import random
import struct
from collections.abc import Collection, Sequence
from functools import partial

import torch

from nvfp4.gpu.timing import CudaTimer
from nvfp4.records.base import Record
from nvfp4.records.launch import Dim3
from nvfp4.retarget.driver import installed_driver

_buffer_bytes = 1 << 30
_rounds, _best, _best_rounds = 2, 2, 8
"""Rounds in which all ways are tried, how many of the fastest ways get further rounds, and the
number of these."""

_magic = 0x12345679

_entry = """
.visible .entry {name}(.param .u64 source, .param .u64 nbytes, .param .u64 more)
{{
    .reg .pred done; .reg .b32 thread, cta, width, x<{words}>;
    .reg .b64 at, first, last, span, step, sink;
    mov.u32 thread, %tid.x; mov.u32 cta, %ctaid.x; mov.u32 width, %ntid.x;
    {span}
    ld.param.u64 at, [source]; ld.param.u64 last, [nbytes]; sub.s64 last, last, span;
    cvt.u64.u32 first, cta; mul.lo.u64 first, first, span;
    min.s64 first, first, last; max.s64 first, first, 0; // the last CTA ends where all of it ends
    add.s64 at, at, first;
{body}
}}
"""

_bulk_span = "ld.param.u64 span, [more];"
_bulk_body = """
    .reg .b32 nbytes_32, barrier_at, target_at; .reg .b64 policy; .shared .align 8 .b64 barrier;
    setp.ne.u32 done, thread, 0; @done ret;
    cvt.u32.u64 nbytes_32, span; mov.u32 barrier_at, barrier; mov.u32 target_at, target;
    mbarrier.init.shared.b64 [barrier_at], 1;
    fence.mbarrier_init.release.cluster; fence.proxy.async;
    createpolicy.fractional.L2::evict_first.b64 policy, 1.0;
    mbarrier.arrive.expect_tx.shared.b64 _, [barrier_at], nbytes_32;
    cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint
        [target_at], [at], nbytes_32, [barrier_at], policy;
wait:
    mbarrier.try_wait.parity.shared.b64 done, [barrier_at], 0; @!done bra wait;
    ret;
"""


class Read(Record):
    """A way to read memory."""

    threads: int
    """The threads of a CTA."""
    loads: int
    """Loads of a thread, which are all in flight at once."""
    load_bytes: int = 16
    """The bytes of a load."""
    bulk: bool = False
    """Whether a CTA reads by one bulk copy instead."""

    @property
    def name(self) -> str:
        return "bulk" if self.bulk else f"read_{self.loads}x{self.load_bytes}"

    @property
    def cta_bytes(self) -> int:
        return self.load_bytes * (1 if self.bulk else self.loads * self.threads)

    def launch(self, source: int, nbytes: int, sink: int) -> tuple[Dim3, Dim3, int, list[bytes]]:
        """Return grid, block, shared bytes and parameters.

        source, sink: addresses. nbytes: a multiple of 32; enough CTAs run to read all of it.
        """
        grid = -(-nbytes // self.cta_bytes), 1, 1
        more = self.cta_bytes if self.bulk else sink
        parameters = [struct.pack("<Q", each) for each in (source, nbytes, more)]
        shared_bytes = self.cta_bytes if self.bulk else 0
        return grid, (self.threads, 1, 1), shared_bytes, parameters

    def ptx(self) -> str:
        """Return the PTX of the kernel, which all reads with this name share."""
        if self.bulk:
            kernel = _entry.format(name=self.name, words=1, span=_bulk_span, body=_bulk_body)
            return ".extern .shared .align 128 .b8 target[];" + kernel
        words = self.load_bytes // 4
        count = self.loads * words
        span = f"mul.wide.u32 step, width, {self.load_bytes}; mul.lo.u64 span, step, {self.loads};"
        lines = [f"mad.wide.u32 at, thread, {self.load_bytes}, at; ld.param.u64 sink, [more];"]
        for first in range(0, count, words):
            into = ", ".join(f"x{word}" for word in range(first, first + words))
            load = f"ld.global.nc.L1::no_allocate.v{words}.b32 {{{into}}}, [at];"
            lines.append(f"{load} add.s64 at, at, step;")
        lines += [f"xor.b32 x0, x0, x{word};" for word in range(1, count)]
        # It depends on every load, so that none is left out.
        lines.append(f"setp.eq.u32 done, x0, {_magic}; @done st.global.b32 [sink], x0; ret;")
        body = "\n".join(f"    {line}" for line in lines)
        return _entry.format(name=self.name, words=count, span=span, body=body)


def ways(capability: tuple[int, int], newest_ptx: tuple[int, int]) -> dict[str, list[Read]]:
    """Return the reads to try on a GPU, by the header of their module."""
    sizes = (256, 1), (256, 2), (256, 4), (512, 1), (512, 2), (512, 4), (1024, 1)
    found = {".version 7.4\n.target sm_70": [Read(*size) for size in sizes]}
    if capability >= (9, 0):
        bulk = [Read(32, 1, kib << 10, bulk=True) for kib in (8, 16, 32)]
        found[".version 8.0\n.target sm_90"] = bulk
    if capability >= (10, 0) and newest_ptx >= (8, 8):
        found[".version 8.8\n.target sm_100"] = [Read(256, 1, 32), Read(256, 2, 32)]
    return found


def module(header: str, reads: Sequence[Read]) -> str:
    """PTX with the kernels of these reads."""
    kernels = {read.name: read.ptx() for read in reads}
    return f"{header}\n.address_size 64\n" + "\n".join(kernels.values())


class Reads:
    """Loaded kernels, and random bytes for them to read. ways: the ways of reading that were
    loaded."""

    def __init__(self, device: torch.device, wanted: Collection[Read] | None = None) -> None:
        """wanted: ways to load (see ``ways``); None for all."""
        driver = installed_driver()
        capability = torch.cuda.get_device_capability(device)
        free_bytes = torch.cuda.mem_get_info(device)[0]
        # Random contents: constant ones can move faster than data do.
        part = torch.empty(1 << 17, dtype=torch.int64, device=device).random_()
        self._buffer = part.repeat(min(_buffer_bytes, free_bytes // 4) // part.nbytes)
        self._sink = torch.zeros(1, dtype=torch.int64, device=device)
        self._device = device
        self._kernels = {}
        for header, offered in ways(capability, driver.newest_ptx()).items():
            reads = [each for each in offered if wanted is None or each in wanted]
            if not reads:
                continue
            loaded = driver.load(module(header, reads))
            for read in reads:
                self._kernels[read] = loaded.kernel(read.name, (8, 8, 8))
        self.ways = list(self._kernels)

    def read(self, nbytes: int, way: Read, place: float = 0.0) -> None:
        """Queue a read of so many bytes, at most the buffer's, on the current stream.

        place: position in the buffer, from 0 to 1.
        """
        nbytes = max(32, min(nbytes, self._buffer.nbytes) // 32 * 32)
        left_bytes = self._buffer.nbytes - max(nbytes, way.cta_bytes)
        source = self._buffer.data_ptr() + int(left_bytes * place) // 256 * 256
        stream = torch.cuda.current_stream(self._device).cuda_stream
        self._kernels[way].launch(*way.launch(source, nbytes, self._sink.data_ptr()), stream)

    def shortest_ns(self, size: int, way: Read, timer: CudaTimer, times: int) -> float:
        """Return the shortest time of a read of so many bytes in one way, at several places."""
        self.read(size, way)  # loads the kernel
        found = []
        for number in range(times):
            _, taken = timer.time(partial(self.read, size, way, number / times))
            found.append((taken.late, taken.call_ns))
        return min(found)[1] * self._longer(size)

    def _longer(self, size: int) -> float:
        """Return the factor by which a size exceeds the buffer, at least 1."""
        return max(1.0, size / self._buffer.nbytes)

    def fastest(self, sizes: Sequence[int], timer: CudaTimer) -> list[tuple[Read, float]]:
        """Return for each size in bytes the fastest way to read as much, and its shortest time in
        nanoseconds. Each way is tried at several places in memory, which differ in time. Sizes and
        ways take turns."""
        # A call that the host was late for counts only if there is no other.
        found = {(size, way): (True, math.inf) for size in sizes for way in self.ways}

        def time(size: int, way: Read, place: float) -> None:
            _, taken = timer.time(lambda: self.read(size, way, place))
            found[size, way] = min(found[size, way], (taken.late, taken.call_ns))

        for way in self.ways:
            self.read(min(sizes), way)  # loads the kernel
        for number in range(_rounds):
            for size, way in random.sample(list(found), len(found)):
                time(size, way, number / _rounds)
        best = []
        for size in sizes:
            own = [each for each in found if each[0] == size]
            best += sorted(own, key=lambda each: found[each])[:_best]
        for number in range(_best_rounds):
            for size, way in best:
                time(size, way, number / _best_rounds)
        shortest = []
        for size in sizes:
            taken = {way: found[size, way] for way in self.ways}
            way = min(taken, key=taken.__getitem__)
            shortest.append((way, taken[way][1] * self._longer(size)))
        return shortest
