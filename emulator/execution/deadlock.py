"""The report of a deadlock."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from nvfp4.emulator.errors import Deadlock
from nvfp4.emulator.instructions.site import Site
from nvfp4.emulator.ptx.types import Array
from nvfp4.emulator.state.batch import Batch


def deadlock(
    batch: Batch, held: list[tuple[Site, Array]], barrier_before: Callable[[int], Site]
) -> Deadlock:
    """An error that names who waits, and where.

    held: (instruction, lanes held before it). barrier_before: the barrier instruction in front of a
    block. One of the two waits: something is held, or in a barrier.
    """
    lines, sites = [], []
    for barrier in batch.barriers.values():
        for waiting in barrier.waiting:
            site = barrier_before(waiting.block)
            sites.append(site)
            status = barrier.status(waiting)
            lines.append(f"{_threads(batch, waiting.lanes)} at {_place(site)}: {status}")
    for site, lanes in held:
        sites.append(site)
        lines.append(f"{_threads(batch, lanes)} at {_place(site)}: {site.instruction.text}")
    return Deadlock(
        "no thread can go on. Waiting: " + "; ".join(lines),
        where=sites[-1].location(),
        hint="every thread that a barrier counts must reach it",
    )


def _place(site: Site) -> str:
    source = site.instruction.source and site.instruction.source.users()
    return f"{source}" if source else f"PTX line {site.instruction.line}"


def _threads(batch: Batch, lanes: Array) -> str:
    """Lanes in words: those of the first CTA, and how many other CTAs have some."""
    threads = batch.grid.threads
    cta = int(lanes[0]) // threads
    own = lanes[lanes // threads == cta] % threads
    ranges = np.split(own, np.flatnonzero(np.diff(own) > 1) + 1)
    words = [f"{r[0]}" if r.size == 1 else f"{r[0]}-{r[-1]}" for r in ranges[:6]]
    more = ", ..." if len(ranges) > 6 else ""
    place = batch.coordinates(int(lanes[0]))[0]
    ctas = np.unique(lanes // threads).size
    others = f" (and in {ctas - 1} more CTAs)" if ctas > 1 else ""
    return f"threads {', '.join(words)}{more} of CTA {place}{others}"
