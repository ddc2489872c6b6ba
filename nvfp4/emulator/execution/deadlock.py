"""The report of a deadlock."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import numpy as np

from nvfp4.emulator.errors import Deadlock, Related, SourceLocation
from nvfp4.emulator.instructions.mbarrier import Waits
from nvfp4.emulator.instructions.site import Site
from nvfp4.emulator.ptx.types import Array
from nvfp4.emulator.state.batch import Batch

_MOST_ARRIVALS = 4


def deadlock(
    batch: Batch,
    held: list[tuple[Site, Array]],
    barrier_before: Callable[[int], Site],
    arrivals: Sequence[tuple[Site, int]] = (),
) -> Deadlock:
    """An error that names who waits, and where.

    held: (instruction, lanes held before it). barrier_before: the barrier instruction in front of a
    block. One of the two waits: something is held, or in a barrier. arrivals: the kernel's
    instructions that arrive at mbarriers, and how many warps have executed each.
    """
    waits: list[tuple[Site, Array, str]] = []
    counted = False
    for barrier in batch.barriers.values():
        for waiting in barrier.waiting:
            counted = True
            status = f"at {barrier.status(waiting)}"
            waits.append((barrier_before(waiting.block), waiting.lanes, status))
    on_mbarrier = False
    for site, lanes in held:
        lacking = _status_of_mbarrier(batch, site)
        on_mbarrier |= lacking is not None
        waits.append((site, lanes, lacking or f"at {site.instruction.text}"))
    site, lanes, status = waits[-1]
    message = f"no thread can go on: {_threads(batch, lanes)} wait {status}"
    ended = _ended(batch, lanes) if counted else ""
    if ended:
        message += f"; {ended} without reaching it"
    error = Deadlock(message, where=_located(site, batch, lanes))
    for other, some, said in waits[:-1]:
        text = f"{_threads(batch, some)} wait here, {said}"
        error.related.append(Related(text, other.location()))
    if on_mbarrier:
        error.related += _arrivals(arrivals)
        error.hint = _mbarrier_hint(status)
    else:
        error.hint = "every thread that a barrier counts must reach it"
        if len({each.instruction.line for each, _, _ in waits}) > 1:
            error.hint += ", the same one for all of them"
    return error


def _located(site: Site, batch: Batch, lanes: Array) -> SourceLocation:
    where = site.lane(batch, int(lanes[0])).location()
    return replace(where, thread=None)


def _status_of_mbarrier(batch: Batch, site: Site) -> str | None:
    """What an mbarrier lacks; None for another instruction."""
    wait = batch.kept(Waits).latest.get(site.instruction.line)
    return wait.status(batch) if wait else None


def _arrivals(arrivals: Sequence[tuple[Site, int]]) -> Iterator[Related]:
    for site, warps in arrivals[:_MOST_ARRIVALS]:
        often = "never executed" if not warps else f"executed by {warps:,} warps"
        yield Related(f"arrivals come from here, {often}", site.location())


def _mbarrier_hint(status: str) -> str:
    if "bytes still to come" in status:
        return "expect as many bytes as the copies bring, and make sure that they are issued"
    if "not completed since" in status:
        return "the parity that is waited for flips each time the mbarrier is used again"
    return "as many threads must arrive as mbarrier_init was told"


def _ended(batch: Batch, lanes: Array) -> str:
    """The threads of the first CTA that have exited."""
    threads = batch.grid.threads
    cta = int(lanes[0]) // threads
    alive = batch.alive[cta * threads : cta * threads + batch.thread_count]
    gone = np.flatnonzero(~alive)
    return f"threads {_ranges(gone)} have ended" if gone.size else ""


def _ranges(numbers: Array) -> str:
    ranges = np.split(numbers, np.flatnonzero(np.diff(numbers) > 1) + 1)
    words = [f"{r[0]}" if r.size == 1 else f"{r[0]}-{r[-1]}" for r in ranges[:6]]
    return ", ".join(words) + (", ..." if len(ranges) > 6 else "")


def _threads(batch: Batch, lanes: Array) -> str:
    """Lanes in words: those of the first CTA, and how many other CTAs have some."""
    threads = batch.grid.threads
    cta = int(lanes[0]) // threads
    own = lanes[lanes // threads == cta] % threads
    place = batch.coordinates(int(lanes[0]))[0]
    ctas = np.unique(lanes // threads).size
    others = f" (and in {ctas - 1} more CTAs)" if ctas > 1 else ""
    return f"threads {_ranges(own)} of CTA {place}{others}"
