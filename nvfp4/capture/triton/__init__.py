"""Triton without a GPU: its launches as plain values.

    stop = start(run, arch="sm_100a")
    ...  # import and call code that uses Triton; run(launch) gets every launch
    stop()

Triton compiles without a driver; only loading and launching need one, and that is replaced. See
docs/emulator.md.
"""

from collections.abc import Callable

from nvfp4.capture.session import Session
from nvfp4.records.launch import Launch, Memory, anything_goes

SESSION = Session("Triton")


def start(
    run: Callable[[Launch], None], arch: str = "sm_100a", memory: Memory | None = None
) -> Callable[[], None]:
    """Send every Triton launch of this process to `run`; returns the function that stops it.

    What `run` raises surfaces where the user's code launched its kernel. memory: what the launches
    may touch. Raises ValueError for an architecture that is not known, RuntimeError if an
    interception is on already and ImportError without Triton. A version of Triton that cannot be
    intercepted is refused when something is launched, since others import it and need no launch.
    """
    from nvfp4.capture.triton.hooks import install

    return SESSION.start(run, arch, memory, anything_goes, lambda: install(SESSION).undo)
