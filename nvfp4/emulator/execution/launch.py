"""A launch: its parameters and limits, its CTAs in batches, its report."""

import math
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from nvfp4.emulator import errors
from nvfp4.emulator.compiler.codegen import CompiledKernel
from nvfp4.emulator.execution import experiment
from nvfp4.emulator.execution.module import LoadedModule
from nvfp4.emulator.execution.schedule import Scheduler
from nvfp4.emulator.instructions.copy_engine import note_unwaited
from nvfp4.emulator.instructions.tensor.allocation import require_freed
from nvfp4.emulator.ptx.syntax import RESERVED_FOR_GROUPS, SHARED_BASE
from nvfp4.emulator.ptx.types import Array
from nvfp4.emulator.report import LaunchReport, noted
from nvfp4.emulator.software import software_conversions, software_lines
from nvfp4.emulator.state.batch import (
    MULTIPROCESSORS,
    Batch,
    ClusterQueue,
    LaunchState,
    check_cluster,
    check_shape,
    ctas_by_cluster,
)
from nvfp4.emulator.state.global_races import GlobalRaces
from nvfp4.emulator.state.memory import PARAMETERS, READ, WRITTEN, GlobalMemory, isolated
from nvfp4.emulator.state.order import Order
from nvfp4.emulator.state.races import clocks_of
from nvfp4.emulator.state.tally import Tally
from nvfp4.emulator.state.under_way import Footprint, Hazards, UnderWay, footprint
from nvfp4.emulator.state.witness import Witness
from nvfp4.emulator.work import WorkCounter
from nvfp4.records.launch import Buffer, Launch, resident_ctas
from nvfp4.records.texts import short_name

# Large enough to hide what a call of NumPy costs, small enough that a handful of registers of this
# many lanes and 4 bytes stay in a core's L2 cache.
LANES_PER_BATCH = 32768
# A byte of shared memory costs 6 bytes of shadow when it is checked, or 30 where single bytes are
# accessed.
SHARED_BYTES_PER_BATCH = 8 << 20
LOCAL_BYTES_PER_BATCH = 512 << 20

_THREADS_OF_A_MULTIPROCESSOR, _CTAS_OF_A_MULTIPROCESSOR = 2048, 32
_SHARED_BYTES_OF_A_MULTIPROCESSOR, _REGISTERS_OF_A_MULTIPROCESSOR = 228 << 10, 65536
_MOST_CTAS = 1 << 26
"""CTAs of a launch that are too many to emulate even if they do nothing."""
_SHARE_OF_DEVICE = 3

_LONGEST_SUSPECTED_S = 2.5
"""A launch that takes more processor time and has no finding is not repeated: its case is
`unverified`, and other test shapes are."""
_LEAST_AGAIN_S, _MOST_AGAIN = 5.0, 20.0
"""Time limit of a run in another order: these seconds, or this multiple of the
first run's time if that is longer."""
_UNEVEN = 1.5
"""The most that CTAs of a batch may do, over the mean, where they may leave work to others."""
_SAMPLED_TOGETHER = 16
"""CTAs that run side by side if only a sample runs."""
_LEAST_SEEN_S = 2.0
"""After how many seconds it is known how long the other CTAs of a launch will take."""
_LEAST_SUSPECTED_S, _MOST_SUSPECTED = 2.0, 4.0
"""Limits on repeating a launch without a finding, or a kernel that ran out of time before: in
seconds, or in multiples of the first run if that is longer."""
_SECOND_S, _MOST_TRIALS = 0.3, 3
"""The limit of the other orders of a launch once one of them has run out of time, and how many more
launches of its kernel are tried: a later one may not wait, as where a counter is never set back."""


def launch(
    module: LoadedModule,
    asked: Launch,
    check: bool,
    worlds: experiment.Worlds,
    suspects: bool,
    under_way: UnderWay,
) -> LaunchReport:
    """Run a kernel to its end. See emulator.run. suspects: whether other orders are tried where
    there is no finding, but threads arrive somewhere one after the other."""
    began = time.perf_counter()
    runs = _Runs(module, asked, check, under_way.met_by(asked.stream, asked.programmatic))
    state, counts = runs.first()
    seen = state.hazards
    left = footprint(asked.kernel, state.memory, state.races, seen.triggered, seen.waited)
    late = seen.late or not seen.triggered
    under_way.ended(asked.stream, asked.programmatic, left, late)
    suspected = runs.suspected(state, counts) if suspects else (None, None)
    compared = experiment.Comparison(runs.again, runs.other_place, state, worlds, len(runs.told))
    compared.compare_orders(*suspected)
    report = _report(state, runs.compiled, counts)
    report.findings += [noted(note, asked.kernel) for note in asked.notes]
    if check and software_lines(asked.ptx):
        by_line: Counter[int] = Counter()
        for block, warps in zip(runs.compiled.blocks, counts.tolist(), strict=True):
            for each in block.code:
                by_line[each.line] += warps
        report.findings[:0] = software_conversions(asked.ptx, asked.kernel, by_line)
    report.seconds = time.perf_counter() - began
    return report


class _Runs:
    """The runs of one launch: a first one, some in other orders, and one that watches a race.

    met: launches that may still run. watch: buffers to check for races from the start (others are
    checked from their first write on). together: whether to run as many CTAs at once as a device
    holds, since they wait for each other.
    """

    def __init__(
        self, module: LoadedModule, asked: Launch, check: bool, met: list[Footprint]
    ) -> None:
        self.module = module
        self.asked = asked
        self.met = met
        self.check = check
        self.compiled = module.kernel(asked.kernel, check)
        # Who wrote local memory is not known without following its bytes.
        if check and (asked.kernel in module.tracked or self.compiled.program.local_bytes):
            self.compiled = module.kernel(asked.kernel, check, memory=True)
        self.watch: list[Buffer] = []
        self.together = False
        self._limit_s = math.inf
        self._first_s = self._first_cpu_s = 0.0
        self._ran_out = False
        self._lead = -1
        self.told: list[int] = []

    def first(self) -> tuple[LaunchState, Array]:
        """Run in the first order; return the state, and how many warps ran each block.

        A second run follows if the first one missed something: accesses to buffers that were read
        before their first write, or undefined bytes of memory.
        """
        began, began_cpu = time.perf_counter(), time.thread_time()
        state, counts = self._run(Order())
        missed = state.races is not None and state.races.missed()
        untracked = bool(state.undefined_memory) and not self.compiled.tracks_memory
        if missed or untracked:
            if missed:
                self.watch = [buffer for buffer, _ in state.memory.kept.values()]
            if untracked:
                self.module.tracked.add(self.asked.kernel)
                self.compiled = self.module.kernel(self.asked.kernel, self.check, memory=True)
            experiment.restore(state.memory.kept)
            state, counts = self._run(Order())
        self._lead, self.told = experiment.telling(self.compiled, state.work.runs_of_a_cta())
        self._first_s = time.perf_counter() - began
        self._first_cpu_s = time.thread_time() - began_cpu
        # Threads that wait for each other may take very long one after the other.
        long_s = max(_LEAST_AGAIN_S * self._slowness, _MOST_AGAIN * self._first_s)
        self._limit_s = self._short_limit_s if self._waits else long_s
        return state, counts

    def suspected(
        self, state: LaunchState, counts: Array
    ) -> tuple[errors.OrderDependence | None, errors.OrderDependence | None]:
        """Return `suspected` and `overwriting` of `Comparison.compare_orders` for a launch that has
        run without a finding."""
        quick = self.check and state.fault is None and self._first_cpu_s < _LONGEST_SUSPECTED_S
        if not quick or self._waits > _MOST_TRIALS:
            return None, None
        found = experiment.order_dependence(self.compiled, counts)
        if found is not None and not state.findings:
            least_s = _LEAST_SUSPECTED_S * self._slowness
            self._limit_s = least_s if self._waits else self._short_limit_s
        return found, experiment.overwriting(self.compiled, counts)

    def again(self, order: Order) -> LaunchState:
        """Run in another order."""
        state, _ = self._run(replace(order, lead=self._lead, told=self.told))
        if isinstance(state.fault, errors.RunawayKernel):
            self.module.waiting[self.asked.kernel] += not self._ran_out
            self._ran_out = True
            self._limit_s = min(self._limit_s, _SECOND_S * self._slowness)
        return state

    def other_place(
        self, seen: errors.Seen, written: list[Buffer]
    ) -> tuple[errors.Related | None, LaunchState]:
        """Run again and return the other place of a race, and the state after that run."""
        self.watch += written
        witness = Witness(seen)
        state, _ = self._run(Order(), witness)
        return witness.other(), state

    @property
    def _waits(self) -> int:
        return self.module.waiting[self.asked.kernel]

    @property
    def _short_limit_s(self) -> float:
        return max(_LEAST_SUSPECTED_S * self._slowness, _MOST_SUSPECTED * self._first_s)

    @property
    def _slowness(self) -> float:
        """Return how many times as long everything takes here beside other work."""
        return max(1.0, self._first_s / self._first_cpu_s)

    def _run(self, order: Order, witness: Witness | None = None) -> tuple[LaunchState, Array]:
        state, counts = self._run_once(order, witness)
        if not self.together and is_starved(state):
            self.together = True
            experiment.restore(state.memory.kept)
            return self._run_once(order, witness)
        return state, counts

    def _run_once(self, order: Order, witness: Witness | None) -> tuple[LaunchState, Array]:
        deadline = time.monotonic() + self._limit_s
        if self.asked.deadline is not None:
            deadline = min(deadline, self.asked.deadline)
        asked = replace(self.asked, deadline=deadline if deadline < math.inf else None)
        state = state_before(
            self.module,
            self.compiled,
            asked,
            check=self.check,
            order=order,
            watch=self.watch,
            met=self.met,
        )
        state.witness = witness
        counts, _ = run_ctas(state, self.compiled, self.together)
        return state, counts


def run_ctas(
    state: LaunchState,
    compiled: CompiledKernel,
    together: bool = False,
    most_instructions: int | None = None,
    seed: int = 0,
) -> tuple[Array, int]:
    """Run the CTAs of a launch in batches. An error that stops it is left in the state.

    together: run as many CTAs at once as a device holds, because they wait for each other.
    most_instructions: stop after that many warp instructions, with batches spread over the grid.
    seed: decides which batches come first. Returns how many warps ran each block, and
    the number of CTAs whose work is done.
    """
    clusters = ctas_by_cluster(state.asked.grid, state.cluster)
    clusters = clusters[state.order.ctas(np.arange(len(clusters)))]
    runs = np.zeros(len(compiled.blocks), np.int64)
    size = _resident(state) if together else _batch_size(state)
    cancels, shares = compiled.cancels, compiled.cancels or compiled.hears
    counted = shares and state.work.samples and not state.program.local_bytes
    if counted and (cancels or clusters.size <= _resident(state)):
        # Those that run first do not leave the others less to do than on a device.
        size = max(size, _resident(state))
    if cancels:
        # As if other kernels had most of the device, so that there is something to take over.
        size = min(size, -(-clusters.size // _SHARE_OF_DEVICE))
    if most_instructions is not None:
        size = _whole_clusters(state, min(size, _SAMPLED_TOGETHER))
        clusters = _spread(clusters, size // clusters.shape[1], seed)
    queue = state.not_started = ClusterQueue(clusters)
    ran = 0
    spent: list[float] = []
    compiled_at: tuple[float, int] | None = None
    try:
        while len(queue):
            batch = Batch(state, queue.start(size))
            scheduler = Scheduler(compiled, batch, together)
            scheduler.run()
            note_unwaited(batch)
            require_freed(batch)
            runs += scheduler.runs
            if batch.numbers.size == size:
                spent.append(float(scheduler.runs @ compiled.sizes))
            state.work.add(batch.numbers, scheduler.runs_of_warps)
            state.work.waits |= together
            state.work.timed |= batch.signals.timed
            ran = clusters.size - len(queue) * clusters.shape[1]
            if most_instructions is None:
                state.asked.progress(ran / clusters.size)
            elif int(runs @ compiled.sizes) >= most_instructions:
                break
            if compiled_at is not None:
                _refuse_too_slow(state, *compiled_at, ran, clusters.size)
            compiled_at = compiled_at or (time.monotonic(), ran)
    except errors.EmulatorError as error:
        error.output = "".join(state.output)
        state.fault = error
    uneven = max(spent, default=0.0) * len(spent) > _UNEVEN * sum(spent)
    state.work.waits |= uneven and bool(shares or state.findings)
    state.hazards.land(all_of_them=True)
    return runs, ran


def _refuse_too_slow(state: LaunchState, since: float, before: int, ran: int, ctas: int) -> None:
    """Raise TooSlow if the remaining CTAs would end after the deadline.

    since: when the first batch had run, which includes compiling. before: how many CTAs had run by
    then.
    """
    taken_s = time.monotonic() - since
    deadline = state.asked.deadline
    if deadline is None or taken_s < _LEAST_SEEN_S:
        return
    each_s = taken_s / (ran - before)
    if since + each_s * (ctas - before) > deadline and ran < ctas:
        name = short_name(state.asked.kernel)
        raise errors.TooSlow(f"the {ctas:,} CTAs of {name} would take {each_s * ctas:.0f} s here")


def _spread(clusters: Array, size: int, seed: int) -> Array:
    """Return the clusters in runs of `size`, in an order in which the first runs, however many, are
    spread over the grid; the seed shifts them. The last run may be shorter."""
    whole = len(clusters) // size
    if not whole:
        return clusters
    number, mirrored = np.arange(whole), np.zeros(whole, np.int64)
    for bit in range(whole.bit_length()):
        mirrored = mirrored << 1 | number >> bit & 1
    order = np.argsort(mirrored ^ seed % (1 << whole.bit_length()))
    runs = clusters[: whole * size].reshape(whole, size, -1)[order]
    return np.concatenate([runs.reshape(whole * size, -1), clusters[whole * size :]])


def state_before(
    module: LoadedModule, compiled: CompiledKernel, asked: Launch, *, check: bool = False,
    order: Order | None = None, watch: Sequence[Buffer] = (), tally: Tally | None = None,
    met: Sequence[Footprint] = ()
) -> LaunchState:  # fmt: skip
    """A launch before its first batch. Raises LaunchError."""
    order = order or Order()
    kernel, grid, block, shared_bytes = asked.kernel, asked.grid, asked.block, asked.shared_bytes
    program = compiled.program
    wanted, given = program.parameters, asked.parameters
    if len(given) != len(wanted):
        message = f"{program.kernel} takes {len(wanted)} parameters, {len(given)} are given"
        raise errors.LaunchError(message)
    # All parameters at their offsets, at an address aligned to 128.
    raw = isolated(max(program.parameter_bytes, 1), 128)
    for (name, offset, nbytes), value in zip(wanted, given, strict=True):
        if len(value) != nbytes:
            what = f"parameter {name} of {program.kernel} has {nbytes} bytes"
            raise errors.LaunchError(f"{what}, {len(value)} are given")
        raw[offset : offset + nbytes] = np.frombuffer(value, np.uint8)
    entry = program.entry
    cluster = asked.cluster if asked.cluster != (1, 1, 1) else entry.cluster or (1, 1, 1)
    check_cluster(kernel, grid, cluster, entry.cluster)
    total_shared = program.dynamic_shared + shared_bytes if shared_bytes else program.shared_end
    check_shape(grid, block, min(shared_bytes, 0) or total_shared)
    if math.prod(grid) > _MOST_CTAS:
        raise errors.TooSlow(f"{short_name(kernel)} has {math.prod(grid):,} CTAs")
    required = entry.required_threads
    if required is not None and required != block:
        raise errors.LaunchError(f"{kernel} requires blocks of {required} threads, not {block}")
    most = entry.most_threads
    if most is not None and math.prod(block) > most:
        message = f"{kernel} has {math.prod(block)} threads a block, its launch bounds allow {most}"
        raise errors.LaunchError(message)
    symbols = module.symbols()
    symbols.update((name, raw.ctypes.data) for name, _, _ in program.parameters)
    own = [Buffer(PARAMETERS, raw.ctypes.data, raw.size, writable=False)]
    own += module.buffers()
    memory = GlobalMemory(own, asked.memory)
    uses_reserved = "reserved_smem_offset_1" in compiled.lowered.specials
    races = None
    if check:
        x, y, z = block
        clocks = clocks_of(math.prod(cluster), -(-x * y * z // 32))
        races = GlobalRaces(memory, math.prod(grid), clocks, list(watch))
    shared_base = RESERVED_FOR_GROUPS if uses_reserved else SHARED_BASE
    hazards = Hazards(list(met), memory, order.early)
    return LaunchState(
        asked, program, cluster, raw, symbols, shared_base, total_shared, memory, check, hazards,
        compiled.apart, races, tracks_memory=compiled.tracks_memory, order=order, tally=tally,
        work=WorkCounter(asked.samples),
    )  # fmt: skip


def _batch_size(state: LaunchState) -> int:
    threads = -(-math.prod(state.asked.block) // 32) * 32
    by_lanes = max(1, LANES_PER_BATCH // threads)
    by_shared = max(1, SHARED_BYTES_PER_BATCH // max(1, state.shared_bytes - SHARED_BASE))
    by_local = LOCAL_BYTES_PER_BATCH // (threads * max(1, state.program.local_bytes))
    return _whole_clusters(state, min(by_lanes, by_shared, by_local))


def _whole_clusters(state: LaunchState, ctas: int) -> int:
    """Return `ctas` rounded down to whole clusters, but at least one cluster."""
    size = math.prod(state.cluster)
    return max(1, ctas // size) * size


def _resident(state: LaunchState) -> int:
    """Return how many CTAs of a launch a B200 holds at most."""
    warps = -(-math.prod(state.asked.block) // 32)
    of_warp = 256 * max(1, -(-state.asked.registers // 8))
    per_multiprocessor = min(
        _REGISTERS_OF_A_MULTIPROCESSOR // (warps * of_warp),
        _CTAS_OF_A_MULTIPROCESSOR,
        _THREADS_OF_A_MULTIPROCESSOR // math.prod(state.asked.block),
        _SHARED_BYTES_OF_A_MULTIPROCESSOR // state.shared_bytes,
    )
    size = math.prod(state.cluster)
    return max(size, resident_ctas(MULTIPROCESSORS, max(1, per_multiprocessor), size))


def is_starved(state: LaunchState) -> bool:
    """Return whether CTAs wait for others that have not started."""
    return isinstance(state.fault, errors.RunawayKernel) and state.fault.starved


def _report(state: LaunchState, compiled: CompiledKernel, runs: Array) -> LaunchReport:
    kinds: Counter[str] = Counter()
    for block, count in zip(compiled.blocks, runs.tolist(), strict=True):
        for kind, each in block.kinds.items():
            if count:
                kinds[kind] += each * count
    touched = state.memory.touched
    ctas = math.prod(state.asked.grid)
    work = state.work.work(statements(compiled))
    # Only predictions need it.
    work.spread = state.memory.spread() if state.work.samples else 1.0
    sectors = (touched, touched & READ, touched & WRITTEN)
    distinct, read, written = (int(np.count_nonzero(each)) for each in sectors)
    return LaunchReport(
        kernel=state.asked.kernel, grid=state.asked.grid, block=state.asked.block,
        shared_bytes=state.shared_bytes - SHARED_BASE, ctas_run=ctas, ctas_total=ctas,
        warp_instructions=dict(sorted(kinds.items())), sectors_distinct=distinct,
        sectors_read=read, sectors_written=written, output="".join(state.output), work=work,
        findings=state.findings.records(state.asked.kernel), **vars(state.traffic),
    )  # fmt: skip


def statements(compiled: CompiledKernel) -> list[dict[int, str]]:
    """Return the positions in the PTX text of each block's statements, with their opcodes."""
    return [{each.start: each.opcode for each in block.code} for block in compiled.blocks]
