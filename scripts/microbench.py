"""The numbers that nvfp4/model/ needs of a GPU, measured by kernels that do nothing else.

    python -m scripts.microbench OUT.json

On a machine with a GPU and nvcc, in a minute. nvfp4/model/h100.py says which number of the model is
which number here.
"""

import argparse
import json
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch

from nvfp4.gpu.timing import CudaTimer, flushes
from nvfp4.model.tools import tools
from nvfp4.retarget.driver import Kernel, installed_driver

SOURCE = Path(__file__).with_suffix(".cu")
PARAMETERS = {
    "empty": "", "spin": "q", "read": "pqp", "chase": "ppi", "l1_words": "piipp",
    "l1_quads": "piipp", "pipe": "ipp", "stores": "pip", "shared_loads": "iiipp",
    "shared_chase": "ip", "barriers": "ip", "branches": "ipp", "clocks": "qp",
}  # fmt: skip
"""Of each kernel, or all that begin like it: p a pointer, q eight bytes, i four."""

IN_FLIGHT = [
    *((64, 1), (128, 1), (256, 1), (512, 1), (384, 2), (512, 2), (768, 2), (1024, 2)),
    *((768, 4), (1024, 4), (1024, 8)),
]
"""Threads of an SM and 16-byte loads of each that are under way."""

SIZES_MIB = [4, 8, 16, 32, 48, 64, 96, 128, 192, 256]
MIB = 1 << 20


class Bench:
    """Kernels by name, and memory for them."""

    def __init__(self) -> None:
        self.device = torch.device("cuda", 0)
        torch.cuda.init()
        torch.zeros(1, device=self.device)
        major, minor = torch.cuda.get_device_capability()
        self.sms = torch.cuda.get_device_properties(0).multi_processor_count
        self.module = installed_driver().load(compiled(f"sm_{major}{minor}a"))
        self._kernels: dict[str, Kernel] = {}
        self.numbers = torch.zeros(1 << 16, dtype=torch.int64, device=self.device)
        self.sink = torch.zeros(1 << 20, dtype=torch.int32, device=self.device)
        self.large = torch.empty(2 << 30, dtype=torch.uint8, device=self.device).fill_(1)

    def run(self, name: str, grid: int, block: int, *values: Any) -> None:
        """Queues a kernel. Tensors become pointers."""
        kind = next(each for each in (name, name.partition("_")[0]) if each in PARAMETERS)
        sizes = PARAMETERS[kind]
        if name not in self._kernels:
            widths = [4 if each == "i" else 8 for each in sizes]
            self._kernels[name] = self.module.kernel(name, widths)
        raw = []
        for size, value in zip(sizes, values, strict=True):
            number = value.data_ptr() if isinstance(value, torch.Tensor) else value
            raw.append(int(number).to_bytes(4 if size == "i" else 8, "little"))
        stream = torch.cuda.current_stream().cuda_stream
        self._kernels[name].launch((grid, 1, 1), (block, 1, 1), 0, raw, stream)

    def repeat(self, times: int, *launch: Any) -> None:
        """The same kernel several times, one after the other."""
        for _ in range(times):
            self.run(*launch)

    def cycles(self, name: str, grid: int, block: int, *values: Any, count: int = 1) -> float:
        """What a kernel has written down, the median of three runs; `count` words of it, the
        largest counts."""
        found = []
        for _ in range(3):
            self.numbers.zero_()  # of fewer warps than before
            self.run(name, grid, block, *values)
            torch.cuda.synchronize()
            found.append(float(self.numbers[:count].max()))
        return statistics.median(found)

    def warm_us(self, call: Callable[[], None], calls: int = 20) -> float:
        """The median time of a call that follows another one."""
        times = []
        for _ in range(calls):
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            torch.cuda._sleep(1_000_000)  # so that the host is ahead
            start.record()
            call()
            end.record()
            torch.cuda.synchronize()
            times.append(start.elapsed_time(end) * 1e3)
        return statistics.median(times)


def compiled(arch: str) -> str:
    """The kernels as PTX."""
    said = "there is no nvcc"
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder, "microbench.ptx")
        for nvcc in tools("nvcc"):
            words = [str(nvcc), "-ptx", f"-arch={arch}", "-o", str(target), str(SOURCE)]
            ended = subprocess.run(words, capture_output=True, text=True)
            if target.is_file() and not ended.returncode:
                newest = installed_driver().newest_ptx()
                return _no_newer(target.read_text(), newest)
            said = ended.stderr[-500:]
    sys.exit(said)


def _no_newer(ptx: str, newest: tuple[int, int]) -> str:
    """The text with the latest version that the driver takes."""

    def version(found: re.Match[str]) -> str:
        named = int(found[1]), int(found[2])
        return ".version " + ".".join(map(str, min(named, newest)))

    return re.sub(r"\.version (\d+)\.(\d+)", version, ptx, count=1)


def clock_mhz(bench: Bench) -> float:
    """Of the SMs, while they work."""
    for _ in range(3):
        bench.run("read_4", bench.sms, 1024, bench.large, bench.large.numel() // 16, bench.sink)
    bench.run("clocks", bench.sms, 32, 4_000_000, bench.numbers)
    torch.cuda.synchronize()
    cycles, ns = bench.numbers[:2].tolist()
    return cycles / ns * 1e3


def launches(bench: Bench) -> dict[str, float]:
    """Empty kernels under the judge's clock; how long one more takes; thread blocks, started."""
    found: dict[str, float] = {}
    for flush in flushes:
        timer = CudaTimer(bench.device, flushes[flush])
        for name, call in {
            "empty": partial(bench.run, "empty", bench.sms, 128),
            "two": partial(bench.repeat, 2, "empty", bench.sms, 128),
        }.items():
            taken = [timer.time(call)[1] for _ in range(25)][5:]
            found[f"{name}_{flush}"] = statistics.median(each.call_ns / 1e3 for each in taken)
        del timer
        torch.cuda.empty_cache()
    for block in (32, 128, 512):
        for each in (1, 8, 64, 256, 1024):
            call = partial(bench.run, "empty", each * bench.sms, block)
            found[f"grid_{each}x_block_{block}"] = bench.warm_us(call)
    # Every SM runs `waves` blocks of 1024 threads twice at a time, each for 4000 cycles.
    for waves in (1, 2, 4, 8, 16):
        call = partial(bench.run, "spin", 2 * waves * bench.sms, 1024, 4000)
        found[f"spin_4000_waves_{waves}"] = bench.warm_us(call)
    return found


def bandwidths(bench: Bench) -> list[dict[str, float]]:
    """GB/s of a long read, by bytes in flight on an SM."""
    found = []
    quads = bench.large.numel() // 16
    for threads, loads in IN_FLIGHT:
        call = partial(
            bench.run, f"read_{loads}", bench.sms, threads, bench.large, quads, bench.sink
        )
        us = bench.warm_us(call, 3)
        gbps = bench.large.numel() / us / 1e3
        found.append({"bytes": 16 * threads * loads, "gbps": round(gbps, 1)})
    return found


def cold_reads(bench: Bench) -> dict[str, Any]:
    """Microseconds under the judge's clock, by bytes in flight and MiB read, after both flushes."""
    found: dict[str, Any] = {}
    for flush in flushes:
        timer = CudaTimer(bench.device, flushes[flush])
        for threads, loads in ((256, 1), (512, 1), (512, 2), (1024, 2), (1024, 4), (1024, 8)):
            by_size = {}
            for size in SIZES_MIB:
                times = []
                for turn in range(14):
                    part = bench.large[(turn % 4) * 512 * MIB :]
                    quads = size * MIB // 16
                    read = f"read_{loads}", bench.sms, threads, part, quads, bench.sink
                    times.append(timer.time(partial(bench.run, *read))[1].call_ns / 1e3)
                by_size[size] = round(statistics.median(times[2:]), 3)
            found[f"{flush}_{16 * threads * loads}"] = by_size
        del timer
        torch.cuda.empty_cache()
    return found


def cached_bandwidths(bench: Bench) -> dict[str, float]:
    """GB/s of reads that L2 answers: one buffer again and again."""
    found = {}
    for size in (4, 8, 16, 24):
        quads = size * MIB // 16
        for loads in (2, 4):
            read = f"read_{loads}", 2 * bench.sms, 1024, bench.large, quads, bench.sink
            us = bench.warm_us(partial(bench.repeat, 20, *read), 3)
            found[f"{size}_mib_{loads}_loads"] = round(20 * size * MIB / us / 1e3, 1)
    for blocks in (1, 4, 16):  # what one SM can take
        quads = 2 * MIB // 16
        call = partial(bench.run, "read_4", blocks, 1024, bench.large, quads, bench.sink)
        call()
        us = bench.warm_us(call, 5)
        found[f"{blocks}_blocks_us_of_2_mib"] = us
    return found


def latencies(bench: Bench) -> dict[str, float]:
    """Cycles of dependent loads from memory and from shared memory, of barriers and branches."""
    steps, stride = 2048, 4096
    order = torch.randperm((1 << 30) // stride, device=bench.device)[:steps]
    order[order == 0] = order[0].clone()
    order[0] = 0  # where the chase begins
    words = bench.large.view(torch.int32)
    words[order * (stride // 4)] = (order.roll(-1) * (stride // 4)).to(torch.int32)
    torch.cuda.synchronize()
    bench.large[1 << 30 :].fill_(1)  # what was written leaves the L2
    bench.run("chase", 1, 1, bench.large, bench.numbers, steps - 1)
    torch.cuda.synchronize()
    found = {"memory": float(bench.numbers[0])}
    found["shared"] = bench.cycles("shared_chase", 1, 32, 512, bench.numbers)
    for warps in (1, 2, 4, 8, 16, 32):
        found[f"barrier_{warps}"] = bench.cycles("barriers", 1, 32 * warps, 256, bench.numbers)
    found["branch"] = bench.cycles("branches", 1, 32, 4096, bench.numbers, bench.sink)
    return found


def pipes(bench: Bench) -> dict[str, float]:
    """Cycles of one scheduler for an instruction of a warp, with 8 warps a scheduler."""
    names = re.findall(r"^PIPE\((\w+),", SOURCE.read_text(), re.MULTILINE)
    rounds, warps = 64, 8
    found = {}
    for name in names:
        values = (rounds, bench.numbers, bench.sink)
        taken = bench.cycles(f"pipe_{name}", 1, 128 * warps, *values, count=32)
        found[f"{name}_{warps}"] = round(taken / (32 * rounds * warps), 3)
    return found


def l1_passes(bench: Bench) -> dict[str, float]:
    """Cycles of an SM for a load of a warp that L1 answers, by bytes between lanes; and the same of
    shared memory."""
    found = {}
    rounds = 64
    for kernel, strides in (
        ("l1_words", (0, 4, 8, 16, 32, 64, 128, 256)),
        ("l1_quads", (0, 16, 32, 64, 128, 256)),
    ):
        for stride in strides:
            values = (bench.large, stride, rounds, bench.numbers, bench.sink)
            taken = bench.cycles(kernel, 1, 1024, *values)
            found[f"{kernel}_{stride}"] = round(taken / (8 * rounds * 32), 3)
    for wide, lane_bytes in ((0, 4), (0, 8), (0, 128), (1, 16), (1, 32)):
        values = (rounds, lane_bytes, wide, bench.numbers, bench.sink)
        taken = bench.cycles("shared_loads", 1, 1024, *values, count=32)
        found[f"shared_{16 if wide else 4}_{lane_bytes}"] = round(taken / (16 * rounds * 32), 3)
    return found


def stores(bench: Bench) -> dict[str, float]:
    """Cycles of an SM for 128 bytes that a warp stores: of one SM that works, and of all."""
    rounds = 256
    found = {}
    for blocks in (1, bench.sms):
        values = (bench.sink, rounds, bench.numbers)
        taken = bench.cycles("stores", blocks, 1024, *values, count=blocks)
        found[f"{blocks}_blocks"] = round(taken / (32 * rounds), 3)
    return found


def main() -> int:
    """Writes the JSON; each part is written as soon as it is there."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("out", type=Path)
    given = parser.parse_args()
    bench = Bench()
    found: dict[str, Any] = {"device": torch.cuda.get_device_name(), "sms": bench.sms}
    parts: dict[str, Callable[[Bench], Any]] = {
        "clock_mhz": clock_mhz,
        "launches_us": launches,
        "read_gbps": bandwidths,
        "pipe_cycles": pipes,
        "latency_cycles": latencies,
        "l1_cycles": l1_passes,
        "store_cycles": stores,
        "l2_gbps": cached_bandwidths,
        "cold_read_us": cold_reads,
    }
    for name, part in parts.items():
        began = time.perf_counter()
        try:
            found[name] = part(bench)
        except Exception as error:  # the others may still be measured
            found[name] = f"{type(error).__name__}: {error}"
        print(
            f"{name} ({time.perf_counter() - began:.1f} s): {json.dumps(found[name])}", flush=True
        )
        given.out.write_text(json.dumps(found, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
