"""The contents of memory if the launches so far had run in another order."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import numpy as np

from nvfp4.emulator.errors import EmulatorError, Related
from nvfp4.emulator.ptx.types import Array
from nvfp4.emulator.report import Place
from nvfp4.emulator.state.memory import contents
from nvfp4.emulator.state.order import Order
from nvfp4.records.launch import Buffer


@dataclass(frozen=True)
class Difference:
    """A buffer as the first order left it, and as another did: uint8[nbytes] each. cause: the
    finding behind it.
    """

    buffer: Buffer
    first: Array
    other: Array
    cause: EmulatorError


@dataclass
class World:
    """Memory in another order, as far as it differs."""

    differences: list[Difference] = field(default_factory=list)

    def cause_in(self, span: Buffer) -> EmulatorError | None:
        """Why something in a range of addresses may differ; None if nothing does."""
        return next((d.cause for d in self.differences if _overlap(d.buffer, span)), None)

    def update(self, spans: list[Buffer], found: list[Difference]) -> None:
        """In these ranges, nothing else differs any more."""
        left = [d for d in self.differences if not any(_overlap(d.buffer, s) for s in spans)]
        self.differences = left + found

    @contextmanager
    def entered(self, spans: list[Buffer]) -> Iterator[None]:
        """Have these ranges of live memory hold what they hold in this world.

        Bytes that have changed since then, through the host, are the same in all worlds.
        """
        undo = []
        for span in spans:
            for each in self.differences:
                common = _overlap(each.buffer, span)
                if common is not None:
                    here = slice(
                        common.address - each.buffer.address, common.end - each.buffer.address
                    )
                    now = contents(common)
                    undo.append((now, now.copy()))
                    now[:] = np.where(now == each.first[here], each.other[here], now)
        try:
            yield
        finally:
            for now, before in reversed(undo):
                now[:] = before


class Worlds:
    """The worlds that launches have left behind, by order. named: the other places of races, by
    place."""

    def __init__(self) -> None:
        self.by_order: dict[Order, World] = {}
        self.named: dict[Place, list[Related]] = {}

    def __bool__(self) -> bool:
        return any(world.differences for world in self.by_order.values())

    def of(self, order: Order) -> World:
        """The world of an order."""
        return self.by_order.setdefault(order, World())

    def forget_all_but(self, alive: list[Buffer]) -> None:
        """Drop the differences in buffers that are not in `alive`, whose memory has been freed."""
        ranges = {(buffer.address, buffer.nbytes) for buffer in alive}
        for world in self.by_order.values():
            world.differences = [
                d for d in world.differences if (d.buffer.address, d.buffer.nbytes) in ranges
            ]

    def first_cause(self) -> EmulatorError | None:
        """Why memory differs anywhere; None if it does not."""
        found = (d.cause for world in self.by_order.values() for d in world.differences)
        return next(found, None)

    def cause_of(self, span: Buffer, read: Callable[[], Array]) -> EmulatorError | None:
        """The finding on which it depends what `read` returns; it reads in one range of memory."""
        for world in self.by_order.values():
            cause = world.cause_in(span)
            if cause is not None:
                first = read()
                with world.entered([span]):
                    if not np.array_equal(first, read()):
                        return cause
        return None


def _overlap(a: Buffer, b: Buffer) -> Buffer | None:
    """The addresses in both."""
    start, end = max(a.address, b.address), min(a.end, b.end)
    return Buffer(a.name, start, end - start) if start < end else None
