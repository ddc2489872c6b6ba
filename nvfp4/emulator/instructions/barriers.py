"""Barriers of a CTA (bar and barrier: sync, arrive, red) and of a cluster (barrier.cluster),
fences, and hints.

All threads of a launch see one memory in one order here, so prefetches, cache policies and launch
control have no effect, and fences matter to the race check only. An instruction that is not listed
is still an error.
"""

import numpy as np

from nvfp4.emulator.arrays import Array, distinct
from nvfp4.emulator.errors import BarrierMisuse
from nvfp4.emulator.instructions.action import Action, Result, Site, Source, instruction
from nvfp4.emulator.instructions.global_access import acquires_from_sms, empty_l1, note_fence
from nvfp4.emulator.instructions.mbarrier_objects import fence_inits
from nvfp4.emulator.instructions.shared_access import note_proxy_fence, note_thread_fence
from nvfp4.emulator.ptx.flow import is_proxy_fence
from nvfp4.emulator.ptx.syntax import Operand
from nvfp4.emulator.state.barriers import BARRIERS, CtaBarrier
from nvfp4.emulator.state.batch import Execution


@instruction("bar", "barrier", modifiers="cta sync arrive red aligned popc and or u32 pred")
def bar(site: Site) -> Action:
    """bar{.cta}.{sync,arrive}{.aligned} a{, b}; bar.red.{popc,and,or}.type a{, b}, {!}c."""
    waits = "arrive" not in site.parts
    votes = "red" in site.parts
    site.takes(1 + votes, 2 + votes)
    operands: list[Operand] = list(site.operands)
    vote_source = [Source(operands.pop(), "pred")] if votes else []
    counted = len(operands) > 1
    if not waits and not counted:
        raise site.unsupported(f"{site.opcode} needs a thread count")
    sources = [*(Source(operand, "b32") for operand in operands), *vote_source]

    def run(ex: Execution, following: int, which: Array, *more: Array) -> int | None:
        batch, group, _ = ex
        count = more[0] if counted else None
        if not votes and _everybody(ex, which, count):
            batch.traffic.barriers += batch.grid.ctas
            batch.all_met()
            if batch.shared.checked:
                batch.shared.clocks.meet_all()
            return following
        if waits and ex.guard is not None:
            batch.signals.release(group.lanes[~ex.mask()], following)
        for number, positions in _numbers(site, ex, which):
            barrier = batch.barrier(number)
            lanes = group.lanes[positions]
            expected = np.zeros(lanes.size, np.int64)
            if count is not None:
                expected = group.spread(count)[positions].astype(np.int64)
            yes = group.spread(more[-1])[positions] if votes else None
            _check_arrival(site, ex, barrier, lanes, expected)
            barrier.arrive(lanes, expected, yes, waits)
            if waits:
                barrier.keep(lanes, following)
            else:
                batch.arrived(lanes)
            batch.open_barrier(barrier)
        return None if waits else following

    return Action("barrier", sources, [], run, parks=True)


def _everybody(ex: Execution, which: Array, count: Array | None) -> bool:
    """Whether every thread of every CTA arrives at once, so that no thread has to wait."""
    batch, group, guard = ex
    if not group.full or guard is not None or which.size != 1 or which.reshape(-1)[0] >= BARRIERS:
        return False
    if count is not None and (count.size != 1 or count.reshape(-1)[0] != batch.thread_count):
        return False
    barrier = batch.barrier(int(which.reshape(-1)[0]))
    return not barrier.waiting and not barrier.arrived.any()  # since it last opened


def _numbers(site: Site, ex: Execution, which: Array) -> list[tuple[int, Array]]:
    """Return (barrier number, positions in the group) of the lanes that take part."""
    positions = ex.positions()
    flat = ex.group.spread(which)[positions]
    found = []
    for number in distinct(flat).tolist():
        here = positions[flat == number]
        if number >= BARRIERS:
            what = f"barrier {number} does not exist: a CTA has barriers 0 to {BARRIERS - 1}"
            site.lane(ex.batch, ex.group.lanes[here[0]]).fault(BarrierMisuse, what)
        found.append((number, here))
    return found


def _check_arrival(
    site: Site, ex: Execution, barrier: CtaBarrier, lanes: Array, expected: Array
) -> None:
    """Raise unless these lanes may arrive. expected: threads that each lane expects (0: all)."""
    batch = ex.batch
    cta, thread = batch.grid.cta[lanes], batch.grid.thread[lanes]
    odd = np.flatnonzero(expected % 32)
    if odd.size:
        what = f"{barrier.name} counts {int(expected[odd[0]])} threads"
        hint = "the count is a multiple of 32"
        site.lane(batch, lanes[odd[0]]).fault(BarrierMisuse, what, hint=hint)
    whole = -(-batch.thread_count // 32) * 32
    asked, waits = (np.where(each > 0, each, whole) for each in (expected, barrier.expected[cta]))
    conflict = np.flatnonzero((barrier.arrived[cta] > 0) & (asked != waits))
    if conflict.size:
        i = int(conflict[0])
        what = f"{barrier.name} is given a count of {asked[i]} while others wait with {waits[i]}"
        site.lane(batch, lanes[i]).fault(BarrierMisuse, what)
    what = f"the thread arrives at {barrier.name} twice before it completes"
    _refuse(site, ex, lanes, barrier.came[cta, thread], what)


@instruction(*(f"{name}.outcome" for name in ("bar", "barrier", "bar.cta", "barrier.cta")))
def outcome(site: Site) -> Action:
    """Return the result of the threads' votes, the second half of bar.red."""
    site.takes(2)
    popc = "popc" in site.parts
    every = "and" in site.parts
    target, which = site.operands

    def run(ex: Execution, number: Array) -> tuple[Array, ...]:
        group = ex.group
        flat = group.spread(number)
        ones = np.zeros(flat.size, np.int64)
        came = np.zeros(flat.size, np.int64)
        for n in distinct(flat).tolist():
            here = flat == n
            held = ex.batch.barrier(n).outcome[group.cta[here]]
            ones[here], came[here] = held[:, 0], held[:, 1]
        if popc:
            return (group.fold(ones.astype(np.uint32)),)
        return (group.fold(ones == came if every else ones > 0),)

    result = Result(target, "b32" if popc else "pred")
    return Action("barrier", [Source(which, "b32")], [result], run)


def _refuse(
    site: Site, ex: Execution, lanes: Array, wrong: Array, what: str, hint: str | None = None
) -> None:
    """Raise for the first lane that is wrong."""
    found = np.flatnonzero(wrong)
    if found.size:
        site.lane(ex.batch, lanes[found[0]]).fault(BarrierMisuse, what, hint=hint)


@instruction("barrier.cluster", modifiers="arrive|wait release acquire relaxed aligned")
def cluster(site: Site) -> Action:
    """barrier.cluster.{arrive{.release,.relaxed},wait{.acquire}}{.aligned}."""
    waits, releases = "wait" in site.parts, "relaxed" not in site.parts

    def run(ex: Execution, following: int) -> int | None:
        batch, lanes = ex.batch, ex.lanes()
        barrier = batch.cluster_barrier
        owes = barrier.owes[batch.clusters.cta[lanes], batch.clusters.thread[lanes]]
        if not waits:
            what = "the thread arrives at the barrier of the cluster twice without waiting for it"
            hint = "each barrier.cluster.arrive is followed by a barrier.cluster.wait"
            _refuse(site, ex, lanes, owes, what, hint)
            barrier.arrive(lanes, releases)
            batch.arrived(lanes)
            batch.open_barrier(barrier)
            return following
        what = "the thread waits at the barrier of the cluster and has not arrived there"
        hint = "a barrier.cluster.arrive comes before each barrier.cluster.wait"
        _refuse(site, ex, lanes, ~owes, what, hint)
        if ex.guard is not None:
            batch.signals.release(ex.group.lanes[~ex.mask()], following)
        empty_l1(batch, lanes)
        passed = barrier.wait(lanes, following)
        if passed.size:
            batch.signals.release(passed, following)
        return None

    return Action("barrier", [], [], run, parks=True)


@instruction(
    "prefetch", "prefetchu", "applypriority",
    "setmaxnreg", "cp.async.bulk.prefetch", "nanosleep", "pmevent",
)  # fmt: skip
def hint(site: Site) -> Action:
    """A hint, without effect on any result."""
    return Action("special", [], [], lambda ex: None)


@instruction("membar", "fence")
def fence(site: Site) -> Action:
    """membar.level, fence.sem.scope; fence.proxy.async. Others order nothing here."""
    notes = [note_thread_fence]
    if is_proxy_fence(site.instruction):
        notes = [note_proxy_fence]
    elif "mbarrier_init" in site.parts:
        notes = [fence_inits]
    elif "proxy" in site.parts:
        notes = []
    elif any(level in site.parts for level in ("gl", "sys", "gpu")):
        notes = [note_fence, note_thread_fence]
    if acquires_from_sms(site):
        notes.append(empty_l1)

    def run(ex: Execution) -> None:
        for note in notes:
            note(ex.batch, ex.lanes())

    return Action("special", [], [], run)


@instruction("createpolicy", operands="=b64 _? _? _? _? _?")
def createpolicy(site: Site) -> Action:
    """Return a cache policy, whose 64 bits have no meaning here."""
    return site.action("special", lambda ex: (np.zeros(1, np.uint64),))


@instruction("tcgen05", "wgmma")
def tensor_cores(site: Site) -> Action:
    """Refuse wgmma, which a B200 does not have, and tcgen05 without a builder of its own."""
    hint = "it runs on an H100 or H200 alone" if site.parts[0] == "wgmma" else None
    raise site.unsupported(f"{site.opcode} is not emulated", hint)
