"""CuTe DSL without a GPU: its launches as plain values.

    stop = start(run, arch="sm_100a")
    ...  # import and call code that uses CuTe DSL; run(launch) gets every launch
    stop()

Compiling works without a driver; only the compiled host code needs CUDA. See docs/emulator.md.
"""

from collections.abc import Callable

from nvfp4.capture.cutedsl.host import RUNTIME
from nvfp4.records.launch import Examine, Launch, Memory, anything_goes


def start(
    run: Callable[[Launch], None],
    arch: str = "sm_100a",
    memory: Memory | None = None,
    examine: Examine = anything_goes,
) -> Callable[[], None]:
    """Send every CuTe DSL launch of this process to `run`; returns the function that stops it.

    To be called before the user's code is imported, so that it compiles for `arch`. What `run`
    raises surfaces where the user's code called its compiled function. memory: what the launches
    may touch. examine: see `records.launch`. Raises ValueError for an architecture that is not
    known, RuntimeError if an interception is on already and ImportError without CuTe DSL.
    """
    from nvfp4.capture.cutedsl.hooks import install

    return RUNTIME.start(run, arch, memory, examine, lambda: install(RUNTIME).undo)
