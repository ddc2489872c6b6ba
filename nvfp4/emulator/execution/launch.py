"""A launch: its parameters and limits, its CTAs in batches, its report."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from nvfp4.emulator.compiler.codegen import CompiledKernel
from nvfp4.emulator.errors import (
    EmulatorError,
    LaunchError,
    Related,
    RunawayKernel,
    Seen,
    UnsupportedInstruction,
)
from nvfp4.emulator.execution.experiment import compare_orders, restore
from nvfp4.emulator.execution.module import LoadedModule
from nvfp4.emulator.execution.schedule import Scheduler, order_dependence
from nvfp4.emulator.execution.worlds import Worlds
from nvfp4.emulator.instructions.copy_engine import note_unwaited
from nvfp4.emulator.ptx.program import RESERVED_FOR_GROUPS, SHARED_BASE
from nvfp4.emulator.ptx.types import Array
from nvfp4.emulator.report import LaunchReport, noted
from nvfp4.emulator.state.batch import Batch
from nvfp4.emulator.state.global_races import GlobalRaces
from nvfp4.emulator.state.launch_state import LaunchState, check_shape
from nvfp4.emulator.state.memory import PARAMETERS, READ, WRITTEN, GlobalMemory, isolated
from nvfp4.emulator.state.order import Order
from nvfp4.emulator.state.special import MULTIPROCESSORS
from nvfp4.emulator.state.tally import Tally
from nvfp4.emulator.state.watch import Witness
from nvfp4.records.launch import Buffer, Dim3, Launch

# Large enough to hide what a call of NumPy costs, small enough that a handful of registers of this
# many lanes and 4 bytes stay in a core's L2 cache.
LANES_PER_BATCH = 32768
# A byte of shared memory costs 24 bytes of shadow when it is checked.
SHARED_BYTES_PER_BATCH = 4 << 20

_THREADS_OF_A_MULTIPROCESSOR, _CTAS_OF_A_MULTIPROCESSOR = 2048, 32
_SHARED_BYTES_OF_A_MULTIPROCESSOR = 228 << 10

_LONGEST_SUSPECTED_S = 2.0
"""A launch without a finding that takes longer does not run again: another shape has, of tests."""
_LEAST_AGAIN_S, _MOST_AGAIN = 5.0, 20.0
"""How long a run in another order may take: so many times the first one's time."""
_LEAST_SUSPECTED_S, _MOST_SUSPECTED = 1.0, 4.0
"""The same where there is no finding, or another order was in vain before."""


def launch(
    module: LoadedModule,
    asked: Launch,
    check: bool,
    orders: int,
    sample_ctas: int | None,
    worlds: Worlds,
    suspects: bool,
) -> LaunchReport:
    """Run a kernel to its end. See emulator.run. suspects: whether other orders are tried where
    there is no finding, but threads arrive somewhere one after the other."""
    began = time.perf_counter()
    compiled = module.kernel(asked.kernel, check)
    # Who wrote local memory is not known without following its bytes.
    if check and (asked.kernel in module.tracked or compiled.program.local_bytes):
        compiled = module.kernel(asked.kernel, check, memory=True)
    watch: list[Buffer] = []

    limit_s = math.inf
    together = False

    def run(order: Order, witness: Witness | None = None) -> tuple[LaunchState, Array, int]:
        nonlocal together
        found = run_once(order, witness)
        if not together and is_starved(found[0]):
            together = True
            restore(found[0].memory.kept)
            found = run_once(order, witness)
        return found

    def run_once(order: Order, witness: Witness | None) -> tuple[LaunchState, Array, int]:
        deadline = time.monotonic() + limit_s
        if asked.deadline is not None:
            deadline = min(deadline, asked.deadline)
        limited = replace(asked, deadline=deadline if deadline < math.inf else None)
        return _run(module, compiled, limited, check, sample_ctas, order, watch, witness, together)

    def testify(seen: Seen, written: list[Buffer]) -> tuple[Related | None, LaunchState]:
        watch.extend(written)
        witness = Witness(seen)
        state = run(Order(), witness)[0]
        return witness.other(), state

    first_began = time.perf_counter()
    state, runs, ran = run(Order())
    missed = state.races is not None and state.races.missed()
    untracked = bool(state.undefined_memory) and not compiled.tracks_memory
    if missed or untracked:
        # What the first run saw too late or too coarsely is followed in a second one: buffers that
        # were read before anybody wrote them, and undefined bytes of memory.
        if missed:
            watch = [buffer for buffer, _ in state.memory.kept.values()]
        if untracked:
            module.tracked.add(asked.kernel)
            compiled = module.kernel(asked.kernel, check, memory=True)
        restore(state.memory.kept)
        state, runs, ran = run(Order())
    suspected, taken_s = None, time.perf_counter() - first_began
    quick = suspects and check and state.fault is None and taken_s < _LONGEST_SUSPECTED_S
    if quick and not together and asked.kernel not in module.waiting:
        suspected = order_dependence(compiled, runs)
    # Threads that wait for each other may take very long one after the other.
    limit_s = max(_LEAST_AGAIN_S, _MOST_AGAIN * taken_s)
    if asked.kernel in module.waiting or (suspected is not None and not state.findings):
        limit_s = max(_LEAST_SUSPECTED_S, _MOST_SUSPECTED * taken_s)

    def run_again(order: Order) -> LaunchState:
        nonlocal limit_s
        again = run(order)[0]
        if isinstance(again.fault, RunawayKernel):
            module.waiting.add(asked.kernel)
            limit_s = min(limit_s, _LEAST_SUSPECTED_S)
        return again

    compare_orders(run_again, testify, state, orders, worlds, suspected)
    x, y, z = asked.grid
    report = _report(state, compiled, runs, ran, x * y * z)
    report.findings += [noted(note, asked.kernel) for note in asked.notes]
    report.ptx = asked.ptx
    report.seconds = time.perf_counter() - began
    return report


def _run(
    module: LoadedModule,
    compiled: CompiledKernel,
    asked: Launch,
    check: bool,
    sample_ctas: int | None,
    order: Order,
    watch: list[Buffer],
    witness: Witness | None,
    together: bool,
) -> tuple[LaunchState, Array, int]:
    """One run in an order: its state, how many warps ran each block, and how many CTAs.

    watch: buffers to look for races in from the start, others from their first write on. together:
    as many CTAs as a device holds, for those that wait for each other.
    """
    state = _state(module, compiled, asked, check, order, watch)
    state.witness = witness
    x, y, z = asked.grid
    numbers = order.ctas(_ctas(x * y * z, sample_ctas))
    runs = np.zeros(len(compiled.blocks), np.int64)
    size = _resident(state) if together else _batch_size(state, asked.block)
    try:
        for start in range(0, numbers.size, size):
            batch = Batch(state, numbers[start : start + size])
            scheduler = Scheduler(compiled, batch)
            scheduler.run()
            note_unwaited(batch)
            runs += scheduler.runs
    except EmulatorError as error:
        error.output = "".join(state.output)
        state.fault = error
    return state, runs, numbers.size


def run_sample(
    module: LoadedModule,
    compiled: CompiledKernel,
    asked: Launch,
    tally: Tally,
    most_instructions: int | None,
    together: bool = False,
) -> tuple[LaunchState, Array, int]:
    """Run batches of neighbouring CTAs, spread over the grid, until that many warp instructions are
    executed; all of them, in order, without a limit. together: as many at once as a device holds.
    Findings are not looked for.

    Returns what `_run` does.
    """
    state = _state(module, compiled, asked, False, Order(), [], tally)
    numbers = np.arange(math.prod(asked.grid), dtype=np.int64)
    runs = np.zeros(len(compiled.blocks), np.int64)
    sizes = np.array([block.kinds.total() for block in compiled.blocks])
    size = _resident(state) if together else _batch_size(state, asked.block)
    starts = list(range(0, numbers.size, size))
    ran = 0
    try:
        for start in starts if most_instructions is None else _spread(starts):
            batch = numbers[start : start + size]
            scheduler = Scheduler(compiled, Batch(state, batch))
            scheduler.run()
            runs += scheduler.runs
            ran += batch.size
            if most_instructions is not None and int(runs @ sizes) >= most_instructions:
                break
    except EmulatorError as error:
        state.fault = error
    return state, runs, ran


def _spread(starts: list[int]) -> list[int]:
    """The same in an order in which those taken so far are always spread over all."""
    width = len(starts).bit_length()
    order = sorted(range(len(starts)), key=lambda index: f"{index:0{width}b}"[::-1])
    return [starts[index] for index in order]


def _state(
    module: LoadedModule,
    compiled: CompiledKernel,
    asked: Launch,
    check: bool,
    order: Order,
    watch: list[Buffer],
    tally: Tally | None = None,
) -> LaunchState:
    """A launch before its first batch. Raises LaunchError."""
    kernel, grid, block, shared_bytes = asked.kernel, asked.grid, asked.block, asked.shared_bytes
    program = compiled.program
    raw = _parameter_bytes(compiled, asked.parameters)
    _refuse_clusters(kernel, asked.cluster)
    _refuse_clusters(kernel, program.cluster or (1, 1, 1))
    total_shared = program.dynamic_shared + shared_bytes if shared_bytes else program.shared_end
    check_shape(grid, block, total_shared)
    required = program.required_threads
    if required is not None and required != block:
        raise LaunchError(f"{kernel} requires blocks of {required} threads, not {block}")
    symbols = module.symbols()
    symbols.update((name, raw.ctypes.data) for name, _, _ in program.parameters)
    own = [Buffer(PARAMETERS, raw.ctypes.data, raw.size, writable=False)]
    own += module.buffers()
    memory = GlobalMemory(own, asked.memory)
    races = None
    if check:
        x, y, z = block
        races = GlobalRaces(memory, math.prod(grid), -(-x * y * z // 32), watch)
    return LaunchState(
        kernel=kernel,
        grid=grid,
        block=block,
        parameters=raw,
        symbols=symbols,
        shared_base=_lowest_shared(compiled),
        shared_bytes=total_shared,
        dynamic_shared_bytes=shared_bytes,
        local_bytes=program.local_bytes,
        memory=memory,
        check=check,
        races=races,
        tracks_memory=compiled.tracks_memory,
        loads_under_way=compiled.loads_under_way,
        order=order,
        deadline=asked.deadline,
        tally=tally,
    )


def _lowest_shared(compiled: CompiledKernel) -> int:
    """Where the shared memory begins that a kernel may use."""
    if "reserved_smem_offset_1" in compiled.specials.values():
        return RESERVED_FOR_GROUPS
    return SHARED_BASE


def _refuse_clusters(kernel: str, cluster: Dim3) -> None:
    """Raises UnsupportedInstruction for clusters of several CTAs."""
    if cluster != (1, 1, 1):
        raise UnsupportedInstruction(
            f"{kernel} is launched in clusters of {cluster} CTAs",
            hint="only clusters of one CTA are emulated",
        )


def _parameter_bytes(compiled: CompiledKernel, given: Sequence[bytes]) -> Array:
    """All parameters at their offsets, at an address aligned to 128."""
    wanted = compiled.program.parameters
    name = compiled.program.kernel
    if len(given) != len(wanted):
        raise LaunchError(f"{name} takes {len(wanted)} parameters, {len(given)} are given")
    size = compiled.program.parameter_bytes
    raw = isolated(max(size, 1), 128)
    for (parameter, offset, nbytes), value in zip(wanted, given, strict=True):
        if len(value) != nbytes:
            raise LaunchError(
                f"parameter {parameter} of {name} has {nbytes} bytes, {len(value)} are given"
            )
        raw[offset : offset + nbytes] = np.frombuffer(value, np.uint8)
    return raw


def _ctas(total: int, wanted: int | None) -> Array:
    """Linear CTA numbers: all, or `wanted` spread over the grid."""
    if wanted is None or wanted >= total:
        return np.arange(total, dtype=np.int64)
    if wanted < 1:
        raise LaunchError(f"sample_ctas is {wanted}; at least one CTA must run")
    return np.arange(wanted, dtype=np.int64) * total // wanted


def _batch_size(state: LaunchState, block: Dim3) -> int:
    threads = -(-block[0] * block[1] * block[2] // 32) * 32
    by_lanes = max(1, LANES_PER_BATCH // threads)
    by_shared = max(1, SHARED_BYTES_PER_BATCH // max(1, state.shared_bytes - SHARED_BASE))
    return min(by_lanes, by_shared)


def _resident(state: LaunchState) -> int:
    """How many CTAs a B200 holds at most; registers are not counted."""
    per_multiprocessor = min(
        _CTAS_OF_A_MULTIPROCESSOR,
        _THREADS_OF_A_MULTIPROCESSOR // math.prod(state.block),
        _SHARED_BYTES_OF_A_MULTIPROCESSOR // max(1, state.shared_bytes - SHARED_BASE),
    )
    return MULTIPROCESSORS * max(1, per_multiprocessor)


def is_starved(state: LaunchState) -> bool:
    """Whether CTAs wait for others that have not started."""
    return isinstance(state.fault, RunawayKernel) and state.fault.starved


def _report(
    state: LaunchState, compiled: CompiledKernel, runs: Array, ran: int, total: int
) -> LaunchReport:
    kinds: Counter[str] = Counter()
    for block, count in zip(compiled.blocks, runs.tolist(), strict=True):
        for kind, each in block.kinds.items():
            if count:
                kinds[kind] += each * count
    touched = state.memory.touched
    report = LaunchReport(
        kernel=state.kernel,
        grid=state.grid,
        block=state.block,
        shared_bytes=state.shared_bytes - SHARED_BASE,
        ctas_run=ran,
        ctas_total=total,
        warp_instructions=dict(sorted(kinds.items())),
        sectors_distinct=int(np.count_nonzero(touched)),
        sectors_read=int(np.count_nonzero(touched & READ)),
        sectors_written=int(np.count_nonzero(touched & WRITTEN)),
        **vars(state.traffic),
        output="".join(state.output),
        findings=state.findings.records(state.kernel),
        block_runs=[
            (block.kinds.total(), count)
            for block, count in zip(compiled.blocks, runs.tolist(), strict=True)
        ],
    )
    if ran < total:
        report.scale(total / ran)
    return report
