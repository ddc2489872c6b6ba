"""Does it matter? A launch with findings runs again, in other orders and on other noise.

Outputs that agree bit for bit in all runs were not harmed by what was found. Where they differ, the
first finding that can be the cause becomes the error. Missing warp synchronisation is never the
cause: the lanes of a warp run together in every order.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from nvfp4.capture.launch import Buffer
from nvfp4.emulator.errors import (
    EmulatorError,
    MissingWarpSync,
    UninitialisedRegister,
    UninitialisedShared,
)
from nvfp4.emulator.ptx.types import Array
from nvfp4.emulator.state.launch_state import LaunchState
from nvfp4.emulator.state.memory import contents
from nvfp4.emulator.state.order import Order

UNDEFINED = (UninitialisedRegister, UninitialisedShared)

Kept = Mapping[int, tuple[Buffer, Array]]
"""By address, the buffers that a run has written and what they held before."""

Run = Callable[[Order], LaunchState]

_NOISES = 3


def refuse_if_it_matters(run: Run, state: LaunchState, orders: int) -> None:
    """Run a launch again after a first run in `Order()` and compare what it wrote.

    run: executes the launch in an order. state: of the first run. orders: how many orders there are
    in all, the first included. Raises the finding that makes a difference, or the fault of the
    first run; else memory is as the first run left it.
    """
    undefined = [error for error in state.findings if isinstance(error, UNDEFINED)]
    races = [e for e in state.findings if not isinstance(e, (*UNDEFINED, MissingWarpSync))]
    if undefined:
        what = "the result depends on a value that nothing has set"
        for values in range(1, min(orders, _NOISES)):
            _compare(run, Order(0, values), state, undefined[0], what, rounds=False)
    if state.fault is not None:
        raise state.fault
    if races:
        what = "the result depends on the order in which warps and CTAs run"
        for number in range(1, orders):
            _compare(run, Order(number), state, races[0], what, state.rounds)


def _compare(
    run: Run, order: Order, state: LaunchState, finding: EmulatorError, what: str, rounds: bool
) -> None:
    kept = state.memory.kept
    first = {address: contents(buffer).copy() for address, (buffer, _) in kept.items()}
    restore(kept)
    other = run(order)
    fault = state.fault or other.fault
    if fault is not None and str(state.fault) != str(other.fault):
        raise finding.because(f"{what}: {fault.message}") from fault
    written = {**other.memory.kept, **kept}
    for address, (buffer, before) in written.items():
        if not _same(contents(buffer), first.get(address, before), rounds):
            raise finding.because(what)
    for address, (buffer, before) in written.items():
        contents(buffer)[:] = first.get(address, before)


def _same(a: Array, b: Array, rounds: bool) -> bool:
    """Whether two uint8[nbytes] are equal, but for rounding if `rounds`."""
    if np.array_equal(a, b):
        return True
    if not rounds:
        return False
    end = a.size & ~7
    if not np.array_equal(a[end:], b[end:]):
        return False
    a, b = a[:end], b[:end]
    views = [(a.view(dtype), b.view(dtype)) for dtype in (np.float64, np.float32, np.float16)]
    views.append((_from_bfloat16(a), _from_bfloat16(b)))
    return any(_close(x, y) for x, y in views)


def _from_bfloat16(raw: Array) -> Array:
    return (raw.view(np.uint16).astype(np.uint32) << 16).view(np.float32)


def _close(a: Array, b: Array) -> bool:
    """Whether numbers differ by what sums of a different order may: 1 % of the largest."""
    differ = np.flatnonzero(a != b)
    x, y = a[differ].astype(np.float64), b[differ].astype(np.float64)
    if not (np.isfinite(x).all() and np.isfinite(y).all()):
        return False
    scale = np.abs(a[np.isfinite(a)].astype(np.float64))
    return bool((np.abs(x - y) <= 1e-2 * np.maximum(np.abs(x), 1e-2 * scale.max(initial=0))).all())


def restore(kept: Kept) -> None:
    """Give the buffers back what they held before a run."""
    for buffer, before in kept.values():
        contents(buffer)[:] = before
