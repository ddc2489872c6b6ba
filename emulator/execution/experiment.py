"""Does it matter? A launch with findings runs again, in other orders and on other noise.

Outputs that agree bit for bit in all runs were not harmed by what was found. Where they differ, the
first finding that can be the cause becomes the error.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from nvfp4.capture.launch import Buffer
from nvfp4.emulator.errors import EmulatorError, UninitialisedRegister, UninitialisedShared
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
    first or of another run; else memory is as the first run left it.
    """
    undefined = [error for error in state.findings if isinstance(error, UNDEFINED)]
    others = [error for error in state.findings if not isinstance(error, UNDEFINED)]
    if undefined:
        what = "the result depends on a value that nothing has set"
        for values in range(1, min(orders, _NOISES)):
            _compare(run, Order(0, values), state, undefined[0], what)
    if state.fault is not None:
        raise state.fault
    if others:
        what = "the result depends on the order in which warps and CTAs run"
        for number in range(1, orders):
            _compare(run, Order(number), state, others[0], what)


def _compare(run: Run, order: Order, state: LaunchState, finding: EmulatorError, what: str) -> None:
    kept = state.memory.kept
    first = {address: contents(buffer).copy() for address, (buffer, _) in kept.items()}
    restore(kept)
    other = run(order)
    again = other.memory.kept
    fault = state.fault or other.fault
    if fault is not None and str(state.fault) != str(other.fault):
        if not isinstance(finding, UNDEFINED):
            raise fault
        raise finding.because(f"{what}: {fault.message}") from fault
    differ = any(
        not np.array_equal(contents(buffer), first.get(address, before))
        for address, (buffer, before) in {**again, **kept}.items()
    )
    if differ:
        raise finding.because(what)
    for address, (buffer, _) in kept.items():
        contents(buffer)[:] = first[address]


def restore(kept: Kept) -> None:
    """Give the buffers back what they held before a run."""
    for buffer, before in kept.values():
        contents(buffer)[:] = before
