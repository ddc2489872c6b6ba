"""The time of a call, from what its launches execute, and what it is made of."""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from nvfp4.emulator.names import short_name
from nvfp4.model.assembly import NoMachineCode, assembled
from nvfp4.model.b200 import B200
from nvfp4.model.gpu import Curve, Gpu
from nvfp4.model.h100 import H100
from nvfp4.model.h200 import H200
from nvfp4.model.machine import Machine, machine, reads_memory
from nvfp4.model.multiprocessor import REASONS, memory_cycles, run
from nvfp4.model.paths import paths
from nvfp4.model.pipelined import is_pipelined, slowest
from nvfp4.model.sass import Code
from nvfp4.model.traffic import Access
from nvfp4.records import prediction as records
from nvfp4.records.launch import Dim3

GPUS = {gpu.name: gpu for gpu in (B200, H100, H200)}

_WARP = 32
_REGISTER_UNIT = 256
_SHARED_UNIT = 128
_SCHEDULERS = 4
_MOST_KERNELS = 8
_LONGEST_NAME = 60
_LONGEST_WHY = 200


@dataclass(frozen=True)
class Counted:
    """A launch that was emulated. runs: warp instructions by line of the PTX. accesses: by line, of
    a request. shared_bytes: of a CTA. read_bytes: distinct ones."""

    ptx: str
    kernel: str
    grid: Dim3
    block: Dim3
    shared_bytes: int
    runs: dict[int, int]
    accesses: dict[int, Access]
    read_bytes: int = 0


@dataclass(frozen=True)
class KernelTime:
    """us: without the launch. parts: us by reason; see `multiprocessor.REASONS`. lines: us by line
    of the PTX. ctas_a_sm: that are resident at a time; busiest: that the busiest SM runs.
    """

    kernel: str
    us: float
    parts: dict[str, float]
    lines: dict[int, float]
    registers: int
    spilled_bytes: int
    instructions: float
    ctas_a_sm: int
    busiest: int
    sms: int


@dataclass(frozen=True)
class Prediction:
    """Of a call under the contest's clock. low_us, high_us: hold the truth in four cases of five.
    parts: us by reason, launch included. bound: the largest, in words.
    """

    gpu: str
    us: float
    low_us: float
    high_us: float
    bound: str
    parts: dict[str, float] = field(default_factory=dict)
    kernels: list[KernelTime] = field(default_factory=list)

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON, as `records.prediction` reads them."""
        return {
            "gpu": self.gpu,
            **{name: _short(getattr(self, name)) for name in ("us", "low_us", "high_us")},
            "bound": self.bound,
            "parts": {reason: _short(us) for reason, us in self.parts.items()},
            "kernels": [_plain(each) for each in self.kernels[:_MOST_KERNELS]],
            "missing": None,
        }


def no_prediction(gpu: str, why: str) -> dict[str, Any]:
    """The same where there is no time."""
    return asdict(records.Prediction(gpu, None, None, None, None, missing=why[:_LONGEST_WHY]))


def _plain(kernel: KernelTime) -> dict[str, Any]:
    plain: dict[str, Any] = {
        name: _short(value) if isinstance(value, float) else value
        for name, value in vars(kernel).items()
        if name not in ("parts", "lines")
    }
    return plain | {"kernel": short_name(kernel.kernel)[:_LONGEST_NAME]}


def _short(number: float) -> float:
    """With as many digits as can mean something."""
    return float(f"{number:.4g}")


def predict(gpu: Gpu, launches: list[Counted], clean: bool = False) -> Prediction:
    """The time of a call. clean: after a flush that leaves nothing in the L2 to be written back.
    Raises NoMachineCode."""
    kernels = [kernel_time(gpu, each, clean) for each in launches]
    parts: dict[str, float] = defaultdict(float)
    parts["launch"] = gpu.launch_us + gpu.kernel_gap_us * max(0, len(kernels) - 1)
    if not clean:
        parts["write_back"] = gpu.dirty_us
    for kernel in kernels:
        for reason, us in kernel.parts.items():
            parts[reason] += us
    # What a sample of the thread blocks asks for may be less than what all of them do.
    least_us = max((each.read_bytes for each in launches), default=0) / _fastest_gbps(gpu) / 1e3
    missing_us = least_us - sum(parts.values())
    if missing_us > 0:
        parts["memory_bandwidth"] += missing_us
    total = sum(parts.values())
    bound = bound_of(gpu, dict(parts), kernels)
    low, high = total * gpu.low, total * gpu.high
    return Prediction(gpu.name, total, low, high, bound, dict(parts), kernels)


_BOUNDS = {
    "launch": "launching",
    "write_back": "the L2's dirty lines",
    "issue": "instructions issued",
    "pipe": "an arithmetic pipe",
    "latency": "chains of dependent instructions",
    "memory_latency": "bytes in flight",
    "memory_bandwidth": "memory bandwidth",
    "l2": "L2",
    "l1": "L1 and the load units",
    "shared": "shared memory",
    "barrier": "barriers",
    "tensor": "tensor cores",
    "start": "starting thread blocks",
}


def bound_of(gpu: Gpu, parts: dict[str, float], kernels: list[KernelTime]) -> str:
    """What takes the most of a call's time, in words."""
    largest = max((r for r in parts if r != "launch"), key=parts.__getitem__, default="launch")
    text = _BOUNDS[largest]
    busy = max((each.sms for each in kernels), default=0)
    if busy < 0.7 * gpu.sms:
        text += f", on {busy} of {gpu.sms} SMs"
    return text


def kernel_time(
    gpu: Gpu, asked: Counted, clean: bool, without: frozenset[int] = frozenset()
) -> KernelTime:
    """One launch from its first thread block to its last. without: lines of the PTX whose machine
    code is left out."""
    code = assembled(asked.ptx, asked.kernel, gpu.arch)
    if not asked.accesses and reads_memory(code):
        raise NoMachineCode("the emulator could not run a few thread blocks without the others")
    ctas, warps = math.prod(asked.grid), -(-math.prod(asked.block) // _WARP)
    busiest = -(-ctas // gpu.sms)
    resident = min(busiest, resident_ctas(gpu, code, warps, asked.shared_bytes))
    to_us = 1e-3 / gpu.cycles_per_ns
    lines: dict[int, float] = defaultdict(float)
    if is_pipelined(code):
        spent = _pipelined(gpu, asked, busiest, resident, clean)
        cycles, instructions = sum(spent.values()), float(sum(asked.runs.values()))
    else:
        walked = paths(code, asked.ptx.split("\n"), asked.runs, ctas * warps, warps)
        if without:
            left_out = {n for n, i in enumerate(code.instructions) if i.line in without}
            walked = walked.without(left_out)
        parts = machine(gpu, code, walked, asked.accesses, 1 / resident)
        cycles, by_code, by_reason = simulated(gpu, parts, ctas, busiest, resident, clean)
        spent = {r: each for r, each in zip(REASONS, by_reason.tolist(), strict=True) if each}
        for instruction, each in zip(code.instructions, by_code.tolist(), strict=True):
            lines[instruction.line] += each * to_us
        instructions = float(sum(walked.executions)) * ctas
    return KernelTime(
        kernel=asked.kernel,
        us=cycles * to_us,
        parts={reason: each * to_us for reason, each in spent.items()},
        lines=dict(lines),
        registers=code.registers,
        spilled_bytes=code.spilled_bytes,
        instructions=instructions,
        ctas_a_sm=resident,
        busiest=busiest,
        sms=min(ctas, gpu.sms),
    )


def _pipelined(
    gpu: Gpu, asked: Counted, busiest: int, resident: int, clean: bool
) -> dict[str, float]:
    """What the cycles of a launch with tcgen05 are spent on. At most all shared memory of the
    resident CTAs is in flight. Raises NoMachineCode if it is not known what the CTAs copy."""
    if not any(access.copied for access in asked.accesses.values()):
        raise NoMachineCode("a kernel with tcgen05 whose copies are not known")
    ctas = math.prod(asked.grid)
    in_flight = resident * asked.shared_bytes
    curve = _curve(gpu, gpu.clean if clean else gpu.dirty)
    loaded = float(memory_cycles(in_flight * ctas / gpu.sms / busiest, *curve))
    reason, cycles = slowest(
        gpu,
        asked.ptx.split("\n"),
        asked.runs,
        asked.accesses,
        busiest / ctas,
        max(loaded / in_flight, 1 / gpu.l2_port_bytes),
    )
    starting = min(ctas, gpu.sms) * gpu.cta_dispatch_ns * gpu.cycles_per_ns
    return {reason: cycles, "memory_latency": float(curve[1][0]), "start": starting}


def simulated(
    gpu: Gpu, parts: Machine, ctas: int, busiest: int, resident: int, clean: bool
) -> tuple[float, Any, Any]:
    """Cycles of the busiest SM, and what they are spent on; see `multiprocessor.simulate`."""
    active = min(ctas, gpu.sms)
    curve = _curve(gpu, gpu.clean if clean else gpu.dirty)
    port_bytes = float(min(gpu.l2_port_bytes, gpu.l2_gbps / gpu.cycles_per_ns / active))
    return run(
        *vars(parts).values(),
        busiest,
        resident,
        active * gpu.cta_dispatch_ns * gpu.cycles_per_ns,
        float(gpu.cta_start),
        ctas / gpu.sms / busiest,
        *curve,
        gpu.l2_latency,
        port_bytes,
        gpu.branch,
    )


def resident_ctas(gpu: Gpu, code: Code, warps: int, shared_bytes: int) -> int:
    """Thread blocks that an SM holds at a time."""
    of_warp = -(-max(code.registers, 1) * _WARP // _REGISTER_UNIT) * _REGISTER_UNIT
    by_registers = _SCHEDULERS * (gpu.registers // _SCHEDULERS // of_warp) // warps
    taken = -(-(shared_bytes + gpu.reserved_shared_bytes) // _SHARED_UNIT) * _SHARED_UNIT
    by_shared = gpu.shared_bytes // taken
    return max(1, min(gpu.ctas, gpu.warps // warps, by_registers, by_shared))


def _fastest_gbps(gpu: Gpu) -> float:
    """At which its memory can be read."""
    return max(gbps for _, gbps in (*gpu.clean, *gpu.dirty))


def _curve(gpu: Gpu, curve: Curve) -> tuple[Any, Any]:
    """Bytes in flight on an SM, and how many cycles each of them takes (Little's law)."""
    nbytes, cycles = [0.0], [gpu.dram_latency_ns * gpu.cycles_per_ns]
    for in_flight, gbps in curve:
        nbytes.append(float(in_flight))
        cycles.append(max(cycles[-1], in_flight * gpu.sms / gbps * gpu.cycles_per_ns))
    # Beyond the last point nothing more arrives in the same time.
    nbytes.append(4 * nbytes[-1])
    cycles.append(4 * cycles[-1])
    return np.array(nbytes), np.array(cycles)


__all__ = [
    "GPUS",
    "Counted",
    "KernelTime",
    "NoMachineCode",
    "Prediction",
    "no_prediction",
    "predict",
]
