"""The report of a deadlock."""

from __future__ import annotations

import numpy as np

from nvfp4.emulator.errors import Deadlock, SourceLocation
from nvfp4.emulator.instructions.site import Site
from nvfp4.emulator.ptx.types import Array
from nvfp4.emulator.state.batch import Batch


def deadlock(kernel: str, batch: Batch, held: list[tuple[Site, Array]]) -> Deadlock:
    """An error that names who waits, and where. held: (instruction, lanes held before it)."""
    lines = [
        f"{_threads(batch, waiting.lanes)} at {barrier.status(waiting)}"
        for barrier in batch.barriers.values()
        for waiting in barrier.waiting
    ]
    for site, lanes in held:
        instruction = site.instruction
        source = instruction.source and instruction.source.users()
        place = f"{source}" if source else f"PTX line {instruction.line}"
        lines.append(f"{_threads(batch, lanes)} at {place}: {instruction.text}")
    return Deadlock(
        "no thread can go on. Waiting: " + "; ".join(lines),
        where=held[0][0].location() if held else SourceLocation(kernel),
        hint="every thread that a barrier counts must reach it",
    )


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
