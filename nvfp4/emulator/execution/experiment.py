"""Run a launch with findings again, in other orders and with other uninitialised contents.

If all runs write the same bits, the findings did no harm. Where memory differs, the first finding
that can be the cause is to blame if that memory is used later: it is kept as a separate world
(`Worlds`), in which later launches that touch it run, too. Missing warp synchronisation is never
the cause, since the lanes of a warp run together in every order. Nor is a missing fence, since all
threads see one memory here, nor a live mbarrier that is initialised again, nor one that expects no
arrivals.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace

import numpy as np

from nvfp4.emulator import errors
from nvfp4.emulator.compiler.codegen import CompiledKernel
from nvfp4.emulator.instructions.action import Site
from nvfp4.emulator.ptx.syntax import Instruction, Program, tells
from nvfp4.emulator.ptx.types import Array
from nvfp4.emulator.report import Origin, place_of
from nvfp4.emulator.state.batch import LaunchState
from nvfp4.emulator.state.memory import contents
from nvfp4.emulator.state.order import Order
from nvfp4.records.base import Record
from nvfp4.records.launch import Buffer


class Difference(Record):
    """A buffer whose contents depend on the order of threads."""

    order: Order
    buffer: Buffer
    first: Array
    """Contents that the first order left, uint8[nbytes]."""
    other: Array
    """Contents that another order left, uint8[nbytes]."""
    cause: errors.EmulatorError
    """The finding that explains the difference."""


class Worlds:
    """Memory as other orders left it: its differences from what the first order left.

    Each order has its own world. named: the other places of races, by their own place.
    """

    def __init__(self) -> None:
        self.differences: list[Difference] = []
        self.named: dict[Origin, list[errors.Related]] = {}

    def cause_in(self, order: Order, span: Buffer) -> errors.EmulatorError | None:
        """Return why something in a range of addresses may differ in the world of an order; None if
        nothing does."""
        differing = (d for d in self.differences if d.order == order and _overlap(d.buffer, span))
        return next((d.cause for d in differing), None)

    def update(self, order: Order, spans: list[Buffer], found: list[Difference]) -> None:
        """Replace the differences of an order in these ranges by those that were found."""
        left = (
            d
            for d in self.differences
            if d.order != order or not any(_overlap(d.buffer, s) for s in spans)
        )
        self.differences = [*left, *found]

    @contextmanager
    def entered(self, order: Order, spans: list[Buffer]) -> Iterator[None]:
        """Give these ranges of live memory their contents in the world of an order.

        Bytes that the host has changed since then are the same in all worlds.
        """
        undo = []
        for span in spans:
            for each in self.differences:
                common = _overlap(each.buffer, span)
                if each.order == order and common is not None:
                    start = each.buffer.address
                    here = slice(common.address - start, common.end - start)
                    now = contents(common)
                    undo.append((now, now.copy()))
                    now[:] = np.where(now == each.first[here], each.other[here], now)
        try:
            yield
        finally:
            for now, before in reversed(undo):
                now[:] = before

    def forget_all_but(self, alive: list[Buffer]) -> None:
        """Drop the differences in buffers that are not in `alive`, whose memory has been freed."""
        ranges = {(buffer.address, buffer.nbytes) for buffer in alive}
        self.differences = [
            d for d in self.differences if (d.buffer.address, d.buffer.nbytes) in ranges
        ]

    def cause_of(self, span: Buffer, read: Callable[[], Array]) -> errors.EmulatorError | None:
        """Return the finding that the result of `read` depends on, or None. span: the range that it
        reads."""
        for order in dict.fromkeys(d.order for d in self.differences):
            cause = self.cause_in(order, span)
            if cause is not None:
                first = read()
                with self.entered(order, [span]):
                    if not np.array_equal(first, read()):
                        return cause
        return None


def _overlap(a: Buffer, b: Buffer) -> Buffer | None:
    """Return the addresses in both ranges."""
    start, end = max(a.address, b.address), min(a.end, b.end)
    return Buffer(a.name, start, end - start) if start < end else None


_UNDEFINED = (errors.UninitialisedRegister, errors.UninitialisedShared)
_UNFENCED = (errors.MissingFence, errors.MissingProxyFence, errors.ReadOnlyLoad)
_NEVER_THE_CAUSE = (
    errors.BarrierMisuse,
    errors.UnwaitedStore,
    errors.UnwaitedLoad,
    errors.MissingTensorFence,
    errors.MismatchedSwizzle,
    *_UNFENCED,
)

Kept = Mapping[int, tuple[Buffer, Array]]
"""The buffers that a run has written, by address, with their earlier contents."""

Run = Callable[[Order], LaunchState]

FindOther = Callable[[errors.Seen, list[Buffer]], tuple[errors.Related | None, LaunchState]]
"""Runs the launch once more, given a race and the buffers that are written, to find the race's
other place."""

_MOST_TOLD = 4
"""Most blocks behind each of which the first CTAs wait once."""
_NOISES = 3
"""Number of contents of uninitialised memory with which a launch that reads some runs, the first
included."""
_NAMED = 3


class Comparison(Record):
    """A launch that runs again after a first run in `Order()`."""

    run: Run
    """Executes the launch in an order."""
    find_other: FindOther
    state: LaunchState
    """The launch's state after its first run."""
    worlds: Worlds
    """The memory that earlier launches left, by order; this launch adds its own."""
    told: int = 0
    """The number of the blocks `Order.told`."""

    def compare_orders(
        self,
        suspected: errors.OrderDependence | None = None,
        overwriting: errors.OrderDependence | None = None,
    ) -> None:
        """Run the launch again and compare what it wrote.

        suspected: the cause where there is no finding, or None to look for none. overwriting: the
        cause where other accesses may come before an atomic that overwrites what they did. Memory
        is left as the first run left it. Raises the fault of the first run, or the finding behind a
        fault that not all runs have.
        """
        found = self.state.findings
        undefined = [error for error in found if isinstance(error, _UNDEFINED)]
        early = [error for error in found if isinstance(error, errors.EarlyAccess)]
        others = (*_UNDEFINED, *_NEVER_THE_CAUSE, errors.EarlyAccess)
        races = [e for e in found if not isinstance(e, others)]
        on_other_noise = [Order(0, values) for values in range(1, _NOISES)]
        what = "the result depends on a value that nothing has set"
        self._try(on_other_noise, [each.leading_to(what) for each in undefined[:1]])
        if self.state.fault is not None:
            raise self.state.fault
        what = "the result depends on whether that one has written by then"
        self._try([Order(early=True)], [each.leading_to(what) for each in early[:1]])
        in_turns, behind = [Order(1), Order(2), Order(3, late_stores=True)], list[Order]()
        if any("bulk_group" in each.parts for each in self.state.program.code):
            in_turns += [Order(1, late_stores=True), Order(2, late_stores=True)]
        if any(map(tells if races else _tells_the_grid, self.state.program.code)):
            in_turns.append(Order(1, late="told"))
            behind = [Order(1, behind=n) for n in range(self.told)]
        # What this launch reads may differ in an order of an earlier one.
        behind += (each.order for each in self.worlds.differences if each.order.number)
        late = [overwriting] if overwriting is not None and not races else []
        what = "the result depends on the order in which warps and CTAs run"
        causes = [each.leading_to(what) for each in races[:1]]
        causes = causes or ([suspected] if suspected is not None else [])
        try:
            self._try(in_turns, causes)
            self._try([Order(late="overwriting")], late)
            self._try([each for each in dict.fromkeys(behind) if each not in in_turns], causes)
        except errors.EmulatorError:
            self._name_both_places(causes)
            raise
        if causes and any(each.cause is causes[0] for each in self.worlds.differences):
            self._name_both_places(causes)
        unfenced = [each for each in found if isinstance(each, _UNFENCED)]
        # Races that did no harm get their other place, too. Where an earlier launch has found that,
        # its lines are reused, without its CTA and thread.
        named = self.worlds.named
        for race in (*races[:_NAMED], *unfenced[:_NAMED]):
            place = place_of(race)
            if place in named:
                race.related = race.related or named[place]
                continue
            self._name_both_places([race])
            named[place] = [
                errors.Related(each.message, replace(each.where, cta=None, thread=None))
                for each in race.related
            ]

    def _name_both_places(self, causes: list[errors.EmulatorError]) -> None:
        """Add the other place to the race that is to blame; leaves memory as it is."""
        for cause in causes:
            if cause.seen is None or cause.related:
                continue
            kept = self.state.memory.kept
            written = [buffer for buffer, _ in kept.values()]
            first = {b.address: (b, contents(b).copy()) for b in written}
            restore(kept)
            other, again = self.find_other(cause.seen, written)
            restore({**again.memory.kept, **first})
            if other is not None:
                cause.related.append(other)

    def _try(self, orders: list[Order], causes: Sequence[errors.EmulatorError]) -> None:
        """Run in each order if there is a cause, or if the launch touched memory that differs in
        the world of that order."""
        memory, worlds = self.state.memory, self.worlds
        for order in orders:
            touched = [
                buffer
                for buffer in memory.buffers
                if worlds.cause_in(order, buffer) is not None and memory.flags(buffer).any()
            ]
            earlier = [worlds.cause_in(order, buffer) for buffer in touched]
            cause = next((each for each in (*earlier, *causes) if each is not None), None)
            if cause is not None:
                # Without a cause of its own, the launch does the same in every order.
                found = self._differences(order, bool(causes), touched, cause)
                worlds.update(order, [*touched, *(b for b, _ in memory.kept.values())], found)

    def _differences(
        self, order: Order, differs: bool, touched: list[Buffer], cause: errors.EmulatorError
    ) -> list[Difference]:
        """Return the buffers that differ when the launch runs in the world of an order.

        differs: whether it also runs in that order. Raises `cause` if only one of the runs faults,
        or they fault at different places.
        """
        state = self.state
        kept = state.memory.kept
        written = (buffer for buffer, _ in kept.values())
        first = {b.address: (b, contents(b).copy()) for b in (*touched, *written)}
        restore(kept)
        with self.worlds.entered(order, touched):
            other = self.run(order if differs else Order())
            first = {**other.memory.kept, **first}
            left = {address: contents(buffer).copy() for address, (buffer, _) in first.items()}
        restore(first)
        fault = state.fault or other.fault
        ran_out = isinstance(other.fault, errors.RunawayKernel) and not other.fault.endless
        if ran_out and state.fault is None:
            return []  # a GPU may start all CTAs at once, which wait for each other then
        if fault is not None and _place_of(state.fault) != _place_of(other.fault):
            raise cause.leading_to(fault.message) from fault
        # The order of threads may decide the order in which numbers are added.
        reordered = differs and order.number != 0
        rounds = isinstance(cause, errors.OrderDependence) or (state.rounds and reordered)
        return [
            Difference(order, buffer, expected, left[address], cause)
            for address, (buffer, expected) in first.items()
            if not np.array_equal(expected, left[address])
            and not (rounds and _rounded(expected, left[address], state, buffer))
        ]


def _place_of(fault: errors.EmulatorError | None) -> object:
    return fault and (fault.message, fault.where)


def _rounded(a: Array, b: Array, state: LaunchState, buffer: Buffer) -> bool:
    """Return whether two contents of a buffer, uint8[nbytes], are equal except for rounding."""
    a, b = (np.pad(each, (0, -each.size % 8)) for each in (a, b))
    return any(
        _close(_floats(a, dtype), _floats(b, dtype), 1e-2 if "16" in dtype else 5e-4 * state.rounds)
        for dtype in _dtypes(state.program, buffer)
    )


_FLOATS = {"float64": "f64", "float32": "f32", "float16": "f16", "bfloat16": "bf16"}


def _dtypes(program: Program, buffer: Buffer) -> list[str]:
    """Return the floating-point types that the elements of a buffer may have, of those that are
    used."""
    dtype = buffer.view.dtype if buffer.view else ""
    if dtype in _FLOATS:
        return [dtype]
    used = " ".join(each.opcode for each in program.code)
    return [n for n, of in _FLOATS.items() if of in used and not re.match("u?int|bool", dtype)]


def _floats(raw: Array, dtype: str) -> Array:
    if dtype == "bfloat16":
        return (raw.view(np.uint16).astype(np.uint32) << 16).view(np.float32)
    return raw.view(dtype)


def _close(a: Array, b: Array, share: float) -> bool:
    """Return whether numbers differ by no more than sums of different order may. share: of a number
    that rounds off each time that it grows, as by atomics or in 16 bits; 0 for others."""
    differ = np.flatnonzero(a != b)
    with np.errstate(invalid="ignore"):  # bits of integers may be those of a signalling NaN
        x, y = a[differ].astype(np.float64), b[differ].astype(np.float64)
    if not (np.isfinite(x).all() and np.isfinite(y).all()):
        return False
    if a.dtype.itemsize > 2 and ((x != 0) & (np.abs(x) < np.finfo(a.dtype).tiny)).any():
        return False  # denormal: these bits are those of integers
    largest = np.abs(a[np.isfinite(a)].astype(np.float64)).max(initial=0)
    most = np.maximum(share * np.abs(x), 1e-4 * largest) if share else 2e-5 * largest
    return bool((np.abs(x - y) <= most).all())


def restore(kept: Kept) -> None:
    """Give the buffers back what they held before a run."""
    for buffer, before in kept.values():
        contents(buffer)[:] = before


# --- instructions whose effect may depend on the order of threads ----------------------------

_OTHER_SPACES = frozenset(("shared", "local", "param"))
_CHANGES = frozenset(("and", "or", "xor", "add", "inc", "dec", "min", "max"))
"""Operations of atomics that compute the new value from the old one."""


def order_dependence(kernel: CompiledKernel, runs: Array) -> errors.OrderDependence | None:
    """Return the error to raise if a launch depends on the order of its threads; None if it
    executed no instruction that can be the cause. runs: how often each basic block ran.
    """
    return _about_the_first(
        filter(_orders_arrivals, _executed(kernel, runs)),
        kernel,
        "the result depends on the order in which warps and CTAs run, and here it matters who "
        "comes first",
        "put a barrier before what one thread announces for others, and one after initialising; "
        "let each thread take its part by its index or its ticket",
    )


def overwriting(kernel: CompiledKernel, runs: Array) -> errors.OrderDependence | None:
    """Return the error for an atomic or flag store that discards the old value, in a kernel whose
    other atomics update theirs; None if the launch executed no such two instructions."""
    changing = (e for e in _executed(kernel, runs) if e.parts[0] in ("atom", "red"))
    if all(_CHANGES.isdisjoint(each.parts) for each in changing):
        return None
    return _about_the_first(
        filter(_overwrites, _executed(kernel, runs)),
        kernel,
        "the result depends on whether other threads' atomics come before this one, which "
        "overwrites what they did",
        "set the memory before the launch, and let every thread add to it; a ticket drawn earlier "
        "does not order what comes after it",
    )


def _about_the_first(
    instructions: Iterator[Instruction], kernel: CompiledKernel, message: str, hint: str
) -> errors.OrderDependence | None:
    found = next(instructions, None)
    if found is None:
        return None
    where = Site(kernel.program.kernel, found).location()
    return errors.OrderDependence(message, where=where, hint=hint)


def _executed(kernel: CompiledKernel, runs: Array) -> Iterator[Instruction]:
    for block, count in zip(kernel.blocks, runs.tolist(), strict=True):
        yield from block.code if count else ()


def late_blocks(kernel: CompiledKernel, order: Order) -> frozenset[int]:
    """Return the blocks that an order runs late: those with an instruction that discards the old
    value, as for `overwriting`, or those behind what others may wait for."""
    if order.late == "overwriting":
        late = [any(map(_overwrites, block.code)) for block in kernel.blocks]
    elif order.behind >= 0:
        return frozenset(number + 1 for number in order.told[order.behind :][:1])
    elif order.late == "told":
        code = kernel.program.code
        late = [block.start > 0 and tells(code[block.start - 1]) for block in kernel.blocks]
    elif order.number == 3 and order.lead >= 0:
        late = [any(map(_stores, block.code)) for block in kernel.blocks]
    else:
        return frozenset()
    return frozenset(number for number, each in enumerate(late) if each)


def telling(kernel: CompiledKernel, runs: Array) -> tuple[int, list[int]]:
    """Return `Order.lead` and `Order.told`. The former is the first warp of those that run the
    block with a ticket, or something else upon which other CTAs may act; of several such blocks,
    the last one that the fewest warps run. runs: see `WorkCounter.runs_of_a_cta`."""
    warps = np.count_nonzero(runs.reshape(-1, len(kernel.blocks)), axis=0)
    all_telling = (n for n, b in enumerate(kernel.blocks) if any(map(_tells_the_grid, b.code)))
    told = [n for n in all_telling if warps[n]]
    draws = min(told, key=lambda n: (warps[n], -n), default=None)
    return -1 if draws is None else int((runs[:, draws] > 0).argmax()), told[-_MOST_TOLD:]


def _overwrites(instruction: Instruction) -> bool:
    """Return whether it is an exchange, or a store that others see at once."""
    discards = instruction.parts[0] == "st" or "exch" in instruction.parts
    return discards and tells(instruction)


def _stores(instruction: Instruction) -> bool:
    """Return whether it changes global memory, and is no bulk copy."""
    parts = instruction.parts
    return parts[0] in ("atom", "red", "st") and _OTHER_SPACES.isdisjoint(parts)


def _tells_the_grid(instruction: Instruction) -> bool:
    """Return whether others in the grid may act upon what it does: an atomic or a flag."""
    return _stores(instruction) and tells(instruction)


def _orders_arrivals(instruction: Instruction) -> bool:
    head = instruction.parts[0]
    if head in ("bar", "barrier"):  # of some threads of a CTA
        return "cluster" not in instruction.parts and len(instruction.operands) > 1
    if head == "ld":  # a flag
        return not {"volatile", "relaxed", "acquire"}.isdisjoint(instruction.parts)
    return head == "mbarrier" or tells(instruction)
