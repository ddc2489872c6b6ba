"""The time of a call and its parts, predicted from the work of its launches."""

import heapq
import math
from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import asdict, field
from functools import lru_cache, partial
from typing import Any

import numpy as np

from nvfp4.emulator.ptx.types import Array
from nvfp4.emulator.work import SECTOR_BYTES, Work
from nvfp4.model.assembly import Lines, assembled
from nvfp4.model.atomics import atomics_ns
from nvfp4.model.b200 import B200
from nvfp4.model.gpu import Curve, Gpu, NoPrediction
from nvfp4.model.h100 import H100, H200
from nvfp4.model.machine import STORE, Access, Use, access, columns, machine
from nvfp4.model.meetings import Meetings
from nvfp4.model.multiprocessor import REASONS, memory_cycles, simulate
from nvfp4.model.paths import MEMORY, Paths, Trace
from nvfp4.model.sass import Code
from nvfp4.model.turns import Turns
from nvfp4.records import prediction as records
from nvfp4.records.base import Record
from nvfp4.records.launch import Dim3
from nvfp4.records.texts import short_name

GPUS = {gpu.name: gpu for gpu in (B200, H100, H200)}

_WARP = 32
_REGISTER_UNIT = 256
_SHARED_UNIT = 128
_SCHEDULERS = 4
_TENSOR_MEMORY = ("UTC", "LDTM", "STTM")
_FED = ("UBLKCP", "UTMALDG"), ("UTC",)
"""The instructions that feed tensor cores, and those that run on them."""
_MOST_KERNELS = 8
_MOST_DIFFERENT = 64
"""Most different kernels of a call: each takes the assembler a tenth of a second."""
_MOST_KINDS = 512
"""Most kinds of warps; each kind has its own trace."""
_MOST_STEPS = 20_000_000
"""The most instructions of an SM that are simulated, which takes about two seconds."""
_MOST_MISSED = 0.03
"""The share of a launch's sectors that may be requested by statements which no sampled thread block
executed, and of its bytes that the machine code may not fetch."""
_UNEVEN = 2.0
"""Largest allowed ratio of a thread block's fetches past L1, or of the cycles of the accesses of
all statements, to the mean."""
_FEW_TAKE_LONGER = "accesses of few thread blocks take longer than those of the others"
_FEW_READ_MEMORY = "few thread blocks read from memory what the others find in L1"
_NOTICEABLE = 0.5
"""The share of the predicted cycles that few warps may wait for memory longer than the others."""
_TIMES_AS_LONG = 1.25
"""Largest allowed ratio of what copies take that wait for each other to the predicted cycles."""
_MOST_MEETINGS = 2
"""Most meetings of a cluster whose thread blocks differ: one at the start and one at the end."""
_LONGEST_NAME = 60
_LONGEST_WHY = 200

Simulated = tuple[float, Any, Any]
"""Cycles of an SM: total, by instruction, and by reason."""


class Counted(Record):
    """A launch that was emulated."""

    ptx: str
    kernel: str
    grid: Dim3
    block: Dim3
    shared_bytes: int
    """Shared memory of a CTA."""
    work: Work
    read_bytes: int = 0
    """Distinct bytes that were read."""
    tensor_cycles: int = 0
    """Cycles of all tensor cores together, by the shapes of the products of tcgen05."""
    waited: int = 0
    """How often the host has waited for the device since the launch before."""
    alongside: bool = False
    """Whether launches in other streams may still run."""
    undefined: str = ""
    """An action of the launch whose effect no manual defines, so that no time can be predicted; ""
    if there was none."""


class Host(Record, frozen=False):
    """Copies, operators and waits that host code adds to a call's launches."""

    copied: list[int] = field(default_factory=list)
    """Bytes of each copy within the device's memory, which are read and written one after the
    other."""
    operators: int | None = 0
    """Torch's operators on tensors of the device, each of which launches something; None if one
    sleeps, for a time that is not foreseen."""
    last_waits: int = 0
    """How often the host waits for the device behind the last launch."""
    shares: bool = False
    """Whether kernels may use memory of the host."""


class KernelTime(Record):
    """The predicted time of a kernel."""

    kernel: str
    us: float
    """Microseconds without the launch."""
    parts: dict[str, float]
    """Microseconds by reason; see `multiprocessor.REASONS`."""
    lines: dict[int, float]
    """Microseconds by line of the PTX."""
    registers: int
    spilled_bytes: int
    instructions: float
    ctas_a_sm: int
    """CTAs that an SM holds at a time."""
    busiest: int
    """CTAs that the busiest SM runs."""
    sms: int


class Prediction(Record):
    """The predicted time of a call under the contest's clock."""

    gpu: str
    us: float
    low_us: float
    """Lower end of the interval that contains the measured time in four cases of five."""
    high_us: float
    """Upper end of that interval."""
    bound: str
    """The largest part, in words."""
    parts: dict[str, float] = field(default_factory=dict)
    """Microseconds by reason, launch included."""
    kernels: list[KernelTime] = field(default_factory=list)

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON, as `records.prediction` reads them."""
        us, low_us, high_us = map(_short, (self.us, self.low_us, self.high_us))
        parts = {reason: _short(us) for reason, us in self.parts.items()}
        kernels = [_plain(each) for each in self.kernels[:_MOST_KERNELS]]
        found = records.Prediction(self.gpu, us, low_us, high_us, self.bound, parts, kernels)
        return asdict(found)


def no_prediction(gpu: str, why: str) -> dict[str, Any]:
    """Return the record of a prediction that failed, with the reason as `missing`."""
    return asdict(records.Prediction(gpu, None, None, None, None, missing=why[:_LONGEST_WHY]))


def _plain(kernel: KernelTime) -> dict[str, Any]:
    plain: dict[str, Any] = {
        name: _short(value) if isinstance(value, float) else value
        for name, value in vars(kernel).items()
        if name not in ("parts", "lines")
    }
    return plain | {"kernel": short_name(kernel.kernel)[:_LONGEST_NAME]}


def _short(number: float) -> float:
    """Round a number to four significant digits."""
    return float(f"{number:.4g}")


def predict(
    gpu: Gpu, launches: list[Counted], clean: bool = False, host: Host | None = None
) -> Prediction:
    """Predict the time of a call. clean: after a flush that leaves nothing in the L2 to be written
    back. Raises NoPrediction."""
    host = host or Host()
    if host.operators is None:
        raise NoPrediction("torch.cuda._sleep is called")
    if host.shares:
        raise NoPrediction("kernels may use memory of the host")
    different = len({(each.ptx, each.kernel) for each in launches})
    if different > _MOST_DIFFERENT:
        raise NoPrediction(f"a call launches {different} different kernels, too many to simulate")
    if beside := next((each.kernel for each in launches if each.alongside), None):
        raise NoPrediction(f"{short_name(beside)} may run beside a launch in another stream")
    kernels = [kernel_time(gpu, each, clean) for each in launches]
    parts: dict[str, float] = defaultdict(float)
    gaps = len(kernels) + len(host.copied) + host.operators - 1
    parts["launch"] = gpu.launch_us + gpu.kernel_gap_us * max(0, gaps)
    if waits := sum(each.waited for each in launches):
        waits += 1  # from the first one on, launches are queued no more
    if waits + host.last_waits:
        parts["host"] = gpu.wait_us * (waits + host.last_waits)
    if not clean and any(each.read_bytes for each in launches):
        parts["write_back"] = gpu.dirty_us
    for kernel in kernels:
        for reason, us in kernel.parts.items():
            parts[reason] += us
    fastest_gbps = max(gbps for _, gbps in (*gpu.clean, *gpu.dirty))
    least_us = sum(each.read_bytes for each in launches) / fastest_gbps / 1e3
    more_us = max(0.0, least_us - sum(parts.values())) + 2 * sum(host.copied) / fastest_gbps / 1e3
    if more_us:
        parts["memory_bandwidth"] += more_us
    total = sum(parts.values())
    bound = bound_of(gpu, dict(parts), kernels)
    low, high = total * gpu.low, total * gpu.high
    return Prediction(gpu.name, total, low, high, bound, dict(parts), kernels)


_BOUNDS = {
    "launch": "launching",
    "host": "waits of the host",
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
    "atomics": "atomics on the same words",
}


def bound_of(gpu: Gpu, parts: dict[str, float], kernels: list[KernelTime]) -> str:
    """Describe the part that takes most of a call's time, apart from its first launch."""
    over = {**parts, "launch": parts["launch"] - gpu.launch_us}
    text = _BOUNDS[max(over, key=over.__getitem__)]
    busy = max((each.sms for each in kernels), default=0)
    if busy < 0.7 * gpu.sms:
        text += f", on {busy} of {gpu.sms} SMs"
    return text


def kernel_time(
    gpu: Gpu, asked: Counted, clean: bool, without: frozenset[int] = frozenset()
) -> KernelTime:
    """Predict one launch, from its first thread block to its last. without: lines of the PTX whose
    machine code is left out. Raises NoPrediction."""
    code, found, meetings = _paths(asked.ptx, asked.kernel, gpu.arch)
    work, lines = asked.work, Lines(asked.ptx)
    _check_followed(asked, meetings, lines)
    executed = [work.by_statement(kind) for kind in range(len(work.warps))]
    traces = [found.trace(each) for each in executed]
    turns = Turns(work, executed, traces, code)
    if turns.are_unlike_simulated():
        raise NoPrediction("warps take turns at barriers")
    accesses = _accesses(asked)
    times = _executed(work, traces)
    executions = _memory_executions(code, times)
    line_of = [lines.of(each.statement) for each in code.instructions]
    left_out = [n for n, line in enumerate(line_of) if line in without]
    if left_out:
        traces = [each.without(set(left_out)) for each in traces]
    warps = len(work.ctas[0])
    ctas = math.prod(asked.grid)
    busiest = -(-ctas // gpu.sms)
    resident = min(busiest, resident_ctas(gpu, code, warps, asked.shared_bytes))
    local_bytes = resident * math.prod(asked.block) * code.stack_bytes
    left_bytes = gpu.l1_bytes - resident * (asked.shared_bytes + gpu.reserved_shared_bytes)
    table = machine(gpu, code, accesses, executions, resident, local_bytes <= left_bytes)
    _check_bytes(code, table, times, accesses, lines)
    simulate = partial(simulated, gpu, table, traces, work.ctas, resident=resident, clean=clean)
    sizes = [sum(traces[warp].steps.size for warp in cta) for cta in work.ctas]
    sms = [np.zeros(busiest, np.int64)]
    if len(sizes) > 1:
        if sum(sizes) > _MOST_STEPS:
            raise NoPrediction(f"thread blocks do {len(sizes)} things, too many to simulate")
        kinds = (np.array([kind]) for kind in range(len(sizes)))
        alone = [simulate(kind, ctas=min(ctas, gpu.sms))[0] for kind in kinds]
        sms = busiest_sms(work, alone, sizes, ctas, gpu.sms, resident)
    few = 4 * resident
    times_of = [_all_ctas(simulate, sum(sizes[k] for k in sm), sm, few, ctas) for sm in sms]
    found_times = zip(times_of, sms, strict=True)
    (cycles, by_code, by_reason), of_cta = max(found_times, key=lambda each: each[0][0])
    spent = {r: each for r, each in zip(REASONS, by_reason.tolist(), strict=True) if each}
    tensor = pipelined(gpu, asked, accesses, resident, clean)
    atomics = {"atomics": atomics_ns(gpu, code, work, ctas) * gpu.cycles_per_ns}
    for least, names in ((tensor, _FED["tensor" in tensor]), (atomics, ("ATOM", "RED"))):
        theirs = times * [each.name.startswith(names) for each in code.instructions]
        theirs = theirs / max(theirs.sum(), 1)
        needed = sum(least.values()) * (1 - theirs[left_out].sum())
        if needed > cycles:
            spent, cycles, by_code = least, needed, needed * theirs
    _check_sampled(gpu, work, executed, cycles)
    if turns.loads() * gpu.l2_latency > _NOTICEABLE * cycles:
        raise NoPrediction("warps take turns to wait for memory")
    if not without and work.chained_copies * _copy_latency(gpu, work) > _TIMES_AS_LONG * cycles:
        raise NoPrediction("copies wait for each other more often than the model has them wait")
    to_us = 1e-3 / gpu.cycles_per_ns
    by_line: dict[int, float] = defaultdict(float)
    for line, each in zip(line_of, by_code.tolist(), strict=True):
        by_line[line] += each * to_us
    return KernelTime(
        kernel=asked.kernel,
        us=cycles * to_us,
        parts={reason: each * to_us for reason, each in spent.items()},
        lines=dict(by_line),
        registers=code.registers,
        spilled_bytes=code.spilled_bytes,
        instructions=int(times.sum()) * ctas / len(work.of_cta),
        ctas_a_sm=resident,
        busiest=of_cta.size,
        sms=min(ctas, gpu.sms),
    )


def _check_followed(asked: Counted, meetings: Meetings, lines: Lines) -> None:
    """Raise NoPrediction for a launch of which the model knows that it cannot follow it."""
    work = asked.work
    if asked.undefined:
        raise NoPrediction(f"no manual says what a GPU does: {asked.undefined}")
    if work.waits:
        raise NoPrediction("threads may wait for each other by flags, or do others' work")
    # Barriers of libcu++ read %globaltimer while they wait.
    if work.timed and ("%clock" in asked.ptx or not work.runs("mbarrier.t")):
        raise NoPrediction("the kernel reads a clock, by which it can wait")
    if work.runs("nanosleep"):
        raise NoPrediction("the kernel sleeps")
    if len(work.ctas) > 1 and work.runs("barrier.cluster.wait") > _MOST_MEETINGS:
        raise NoPrediction("thread blocks of a cluster do different things and wait for each other")
    if len(work.warps) > _MOST_KINDS:
        raise NoPrediction(f"the warps of a launch do {len(work.warps)} different things")
    for block, parted_at in work.rejoined.items():
        if not meetings.join(work.starts[block], parted_at):
            line = lines.of(min(work.starts[block]))
            raise NoPrediction(f"parted lanes of a warp come to line {line} of the PTX one by one")


def _check_sampled(gpu: Gpu, work: Work, executed: list[dict[int, int]], cycles: float) -> None:
    """Raise NoPrediction if what a few thread blocks read from memory, or their accesses, may take
    a large part of the predicted cycles longer than the same in others.

    executed: of each kind of warp, how often each statement.
    """
    dram_latency, waited = gpu.dram_latency_ns * gpu.cycles_per_ns, 0.0
    for start, each in work.asked.items():
        most, drawn = max(row.get(start, 0) for row in executed), each.sampled
        if drawn:
            share = drawn.first_requests
            more = most * (min(1.0, drawn.uneven * share) - share) * (drawn.uneven > _UNEVEN)
            waited += max(more, each.alone) * (dram_latency if each.fresh else gpu.l2_latency)
        cost = each.cost / len(work.of_cta)
        if (each.uneven - 1) * cost > _NOTICEABLE * cycles:
            raise NoPrediction(_FEW_TAKE_LONGER)
    if waited > _NOTICEABLE * cycles:
        raise NoPrediction(_FEW_READ_MEMORY)


def _copy_latency(gpu: Gpu, work: Work) -> float:
    """Return the cycles that an asynchronous copy of a launch takes at least, on average."""
    copies = [each for at, each in work.asked.items() if work.opcodes[at].startswith("cp.")]
    sectors = sum(each.copied // SECTOR_BYTES + each.sectors for each in copies)
    fresh = sum(each.fresh for each in copies) / max(sectors, 1)
    return gpu.l2_latency + fresh * (gpu.dram_latency_ns * gpu.cycles_per_ns - gpu.l2_latency)


@lru_cache(maxsize=16)
def _paths(ptx: str, entry: str, arch: str) -> tuple[Code, Paths, Meetings]:
    """Return the machine code of a kernel, a finder of its traces, which remembers them, and where
    lanes of a warp meet."""
    code = assembled(ptx, entry, arch)
    return code, Paths(code, ptx), Meetings(code, ptx)


def _accesses(asked: Counted) -> dict[int, Access]:
    """Return the accesses of each statement. Raises NoPrediction if the sampled thread blocks are
    not representative: if statements that they did not execute request more than a few sectors, or
    if other thread blocks fetch more than a few sectors which the sampled ones find in L1."""
    counts = asked.work.asked
    missed = {start: n.sectors for start, n in counts.items() if n.sampled is None}
    if sum(missed.values()) > _MOST_MISSED * sum(each.sectors for each in counts.values()):
        line = Lines(asked.ptx).of(max(missed, key=missed.__getitem__))
        raise NoPrediction(f"no sampled thread block came to line {line} of the PTX")
    rows = [
        (n.sampled.first * n.sectors, n.sampled.uneven, n.fresh)
        for n in counts.values()
        if n.sampled
    ]
    more = sum(max(0.0, fresh - first) for first, _, fresh in rows)
    uneven = sum(first * times for first, times, _ in rows) > _UNEVEN * sum(row[0] for row in rows)
    costs = [(n.cost, n.uneven) for n in counts.values()]
    if sum(cost * times for cost, times in costs) > _UNEVEN * sum(cost for cost, _ in costs):
        raise NoPrediction(_FEW_TAKE_LONGER)
    if uneven or more > _MOST_MISSED * sum(row[2] for row in rows):
        raise NoPrediction(_FEW_READ_MEMORY)
    ctas = math.prod(asked.grid)
    return {start: access(each, asked.work.spread, ctas) for start, each in counts.items()}


def _executed(work: Work, traces: list[Trace]) -> Array:
    """Return how often the counted CTAs execute each machine instruction."""
    warps = Counter(kind for cta in work.of_cta.values() for kind in work.ctas[cta])
    return np.asarray(sum(times * traces[kind].executions for kind, times in warps.items()))


def _memory_executions(code: Code, executed: Array) -> dict[int, float]:
    """Return how often the memory instructions of each statement are executed, at least once.
    executed: by instruction."""
    found: dict[int, float] = defaultdict(float)
    for instruction, times in zip(code.instructions, executed.tolist(), strict=True):
        if instruction.name in MEMORY:
            found[instruction.statement] += times
    return {statement: max(1.0, times) for statement, times in found.items()}


def _check_bytes(
    code: Code, table: list[Use], executed: Array, accesses: dict[int, Access], lines: Lines
) -> None:
    """Raise NoPrediction unless machine code fetches the bytes that the emulator has counted."""
    fetched: dict[int, float] = defaultdict(float)
    stored = set()
    for instruction, use, times in zip(code.instructions, table, executed.tolist(), strict=True):
        fetched[instruction.statement] += use.own * times
        if use.kind == STORE:
            stored.add(instruction.statement)
    read = {at: n.memory + n.copied_fresh for at, n in accesses.items() if at not in stored}
    missing = {at: nbytes - fetched[at] for at, nbytes in read.items() if nbytes > fetched[at]}
    if sum(missing.values()) > _MOST_MISSED * sum(read.values()):
        line = lines.of(max(missing, key=missing.__getitem__))
        why = f"the machine code of line {line} of the PTX fetches fewer bytes than were counted"
        raise NoPrediction(why)


def busiest_sms(
    work: Work, cycles: list[float], sizes: list[int], ctas: int, sms: int, resident: int
) -> list[Array]:
    """Return the kinds of CTAs, in order, of the SM whose CTAs take longest and of the one with the
    most instructions: each CTA of the grid goes to the SM that has room first. cycles, sizes: of
    each kind of CTA alone, sizes in instructions."""
    kinds = [work.of_cta[cta] for cta in sorted(work.of_cta)]
    free = [(0.0, slot, sm) for slot in range(resident) for sm in range(sms)]
    taken: list[list[int]] = [[] for _ in range(sms)]
    for cta in range(ctas):
        kind = kinds[cta % len(kinds)]
        at, slot, sm = heapq.heappop(free)
        heapq.heappush(free, (at + cycles[kind], slot, sm))
        taken[sm].append(kind)
    most = [max(taken, key=lambda sm: sum(load[k] for k in sm)) for load in (cycles, sizes)]
    return [np.array(sm, np.int64) for sm in most[: 1 + (most[0] != most[1])]]


def pipelined(
    gpu: Gpu, asked: Counted, accesses: dict[int, Access], resident: int, clean: bool
) -> dict[str, float]:
    """Return the cycles of a launch whose tensor cores are fed by copies, by reason; empty for
    other launches. At most all shared memory of the resident CTAs is in flight.

    Warps of such a kernel wait for each other by mbarriers, which the simulation of an SM hardly
    models. The copies and products of a thread block are known nevertheless, and so is the time of
    the slowest of the concurrent units.
    """
    if not asked.tensor_cycles:
        return {}
    ctas = math.prod(asked.grid)
    busiest = -(-ctas // gpu.sms)
    in_flight = resident * asked.shared_bytes
    curve = _curve(gpu, gpu.clean if clean else gpu.dirty)
    loaded = float(memory_cycles(in_flight * ctas / gpu.sms / busiest, *curve))
    cycles_a_byte = max(loaded / in_flight, 1 / gpu.l2_port_bytes) if in_flight else 0.0
    copied = sum(each.copied for each in accesses.values())
    found = {"memory_bandwidth": copied * cycles_a_byte, "tensor": asked.tensor_cycles}
    found = {reason: cycles * busiest / ctas for reason, cycles in found.items()}
    found["tensor"] = max(found["tensor"], asked.work.tensor_cycles)
    reason = max(found, key=found.__getitem__)
    cycles = found[reason]
    starting = min(ctas, gpu.sms) * gpu.cta_dispatch_ns * gpu.cycles_per_ns
    return {reason: cycles, "memory_latency": float(curve[1][0]), "start": starting}


def _all_ctas(
    simulate: Callable[..., Simulated], steps: int, of_cta: Array, few: int, ctas: int
) -> Simulated:
    """Simulate all CTAs of an SM that executes `steps` instructions. If these are too many and the
    CTAs equal, simulate `few` and twice `few` CTAs and extrapolate. Raises NoPrediction."""
    if steps <= _MOST_STEPS:
        return simulate(of_cta, ctas=ctas)
    alike = of_cta.size > 2 * few and len(np.unique(of_cta)) == 1
    if not alike or steps * few / of_cta.size > _MOST_STEPS:
        raise NoPrediction(f"an SM executes {steps:,} instructions, too many to simulate")
    one, other = (simulate(of_cta[:n], ctas=round(n * ctas / of_cta.size)) for n in (few, 2 * few))
    more = (of_cta.size - 2 * few) / few
    cycles, by_code, by_reason = (b + more * (b - a) for a, b in zip(one, other, strict=True))
    return cycles, by_code, by_reason


def simulated(
    gpu: Gpu, table: list[Use], traces: list[Trace], kinds: list[tuple[int, ...]], of_cta: Array,
    resident: int, ctas: int, clean: bool,
) -> Simulated:  # fmt: skip
    """Return the cycles of an SM that runs the CTAs `of_cta` of a grid of `ctas`, and what they are
    spent on; see `multiprocessor.simulate`.

    kinds: the traces of the warps of each kind of CTA. Raises NoPrediction if warps wait forever.
    """
    active = min(ctas, gpu.sms)
    curve = _curve(gpu, gpu.clean if clean else gpu.dirty)
    port_bytes = float(min(gpu.l2_port_bytes, gpu.l2_gbps / gpu.cycles_per_ns / active))
    starting = active * gpu.cta_dispatch_ns * gpu.cycles_per_ns
    ends = np.cumsum([0, *(each.steps.size for each in traces)]).astype(np.int64)
    finish, by_code, by_reason, _ = simulate(
        *columns(table), np.concatenate([each.steps for each in traces]), ends,
        np.array(kinds, np.int64), of_cta, resident, starting, float(gpu.cta_start),
        ctas / gpu.sms / of_cta.size, *curve, gpu.l2_latency, port_bytes, gpu.branch,
    )  # fmt: skip
    if finish < 0:
        raise NoPrediction("the model does not follow how the warps of a thread block wait")
    return float(finish), by_code, by_reason


def resident_ctas(gpu: Gpu, code: Code, warps: int, shared_bytes: int) -> int:
    """Return how many thread blocks an SM holds at a time."""
    of_warp = -(-max(code.registers, 1) * _WARP // _REGISTER_UNIT) * _REGISTER_UNIT
    by_registers = _SCHEDULERS * (gpu.registers // _SCHEDULERS // of_warp) // warps
    taken = -(-(shared_bytes + gpu.reserved_shared_bytes) // _SHARED_UNIT) * _SHARED_UNIT
    by_shared = gpu.shared_bytes // taken
    if any(each.name.startswith(_TENSOR_MEMORY) for each in code.instructions):
        # No second CTA beside one that may use tensor memory (cubin attribute TCGEN05_1CTA_USED):
        # stated for a B200 in the notes of pytorch/ao's NVFP4 training kernels, and two public
        # kernels that only allocate it take as long as that says.
        return 1
    return max(1, min(gpu.ctas, gpu.warps // warps, by_registers, by_shared))


def _curve(gpu: Gpu, curve: Curve) -> tuple[Any, Any]:
    """Return bytes in flight on an SM, and how many cycles each byte then takes (Little's law)."""
    nbytes, cycles = [0.0], [gpu.dram_latency_ns * gpu.cycles_per_ns]
    for in_flight, gbps in curve:
        nbytes.append(float(in_flight))
        cycles.append(max(cycles[-1], in_flight * gpu.sms / gbps * gpu.cycles_per_ns))
    # Beyond the last point nothing more arrives in the same time.
    nbytes.append(4 * nbytes[-1])
    cycles.append(4 * cycles[-1])
    return np.array(nbytes), np.array(cycles)
