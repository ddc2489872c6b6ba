"""Run CUDA kernels given as PTX on the CPU, thread for thread and bit for bit.

    from nvfp4 import emulator
    from nvfp4.records.launch import Buffer, Launch, ListedMemory

    memory = ListedMemory([Buffer("out", address, nbytes)])
    launch = Launch(text, "kernel", (8, 1, 1), (128, 1, 1), parameters, memory=memory)
    report = emulator.run(launch)

The emulator knows nothing of the kernels it runs, nor of who captured them: it reads PTX, executes
it, checks every access and counts what happens. Faults are exceptions derived from EmulatorError.
"""

import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from nvfp4.emulator.cost import KernelCost
from nvfp4.emulator.errors import EmulatorError, EmulatorFailed
from nvfp4.emulator.execution.experiment import Worlds
from nvfp4.emulator.report import LaunchReport
from nvfp4.emulator.state.under_way import UnderWay
from nvfp4.records.launch import Buffer, Launch
from nvfp4.records.launch_errors import CaptureError

if TYPE_CHECKING:
    from nvfp4.emulator.execution.module import LoadedModule


def run(
    launch: Launch,
    check: bool = True,
    worlds: Worlds | None = None,
    under_way: UnderWay | None = None,
    again: bool = False,
) -> LaunchReport:
    """Execute one launch.

    check: also look for findings, which the report lists: races, missing warp synchronisation,
    unwritten shared memory and unset registers. Faults are always looked for. A launch with
    findings runs again in other orders of warps and CTAs, with other contents of uninitialised
    memory and registers. If what it writes differs, the finding that can be the cause is raised.
    worlds: if given, that finding is not raised: the differences are recorded there and applied to
    later launches, since the caller knows which memory is used in the end. under_way: what earlier
    launches left, for launches that may begin while those still run. again: whether earlier calls
    made the same launch, so that without a finding other orders are tried in half of the cases.

    Raises EmulatorError; its subclasses in emulator.errors name the kind of fault.
    """
    # Imported here because loading Numba takes half a second, which only a launch needs.
    from nvfp4.emulator.execution.launch import launch as execute

    own = Worlds()
    found = own if worlds is None else worlds
    # A single launch may write out the tickets its threads drew. Half of the repeated launches are
    # tried, drawn so that no kernel can depend on the order in later calls only.
    suspects = worlds is not None and not (again and secrets.randbelow(2))
    with _own_failures():
        module = _module(launch.ptx)
        before = UnderWay() if under_way is None else under_way
        report = execute(module, launch, check, found, suspects, before)
    if own.differences:
        raise own.differences[0].cause
    return report


def _module(ptx: str) -> "LoadedModule":
    from nvfp4.emulator.execution.module import load_module

    return load_module(ptx)


def cost_of(
    launch: Launch, most_instructions: int, tries: bool = False, seed: int = 0
) -> KernelCost:
    """Return the costs of one launch by line of source. Runs CTAs until `most_instructions` warp
    instructions have been executed. tries: leave memory as it was. seed: decides which CTAs come
    first. Raises EmulatorError.
    """
    from nvfp4.emulator.execution.costs import cost_of as run_for_costs

    with _own_failures():
        return run_for_costs(_module(launch.ptx), launch, most_instructions, tries, seed)


def examine(ptx: str, kernel: str) -> None:
    """Raise UnsupportedInstruction or PtxSyntaxError for a kernel that cannot be emulated,
    whatever its launch."""
    with _own_failures():
        _module(ptx).kernel(kernel, check=False)


@contextmanager
def _own_failures() -> Iterator[None]:
    """Raise EmulatorFailed in place of exceptions that are the emulator's own defects, as no lack
    of memory or files is."""
    try:
        yield
    except (EmulatorError, CaptureError, MemoryError, OSError):
        raise
    except Exception as error:
        message = f"the emulator failed: {type(error).__name__}: {error}"
        hint = "a GPU may well run this kernel; please report it with the file"
        raise EmulatorFailed(message, hint=hint) from error


def variable(ptx: str, name: str) -> Buffer:
    """Return the memory of a __device__ or __constant__ variable of a module. Its value lasts from
    launch to launch. Raises LaunchError if the module has no such variable.
    """
    return _module(ptx).variable(name)


def forget_modules() -> None:
    """Unload all modules. The next launch loads its PTX again, with variables at first values."""
    from nvfp4.emulator.execution.module import KEPT, recent_module

    KEPT.clear()
    recent_module.cache_clear()
