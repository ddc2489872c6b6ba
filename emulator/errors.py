"""Everything that stops an emulated launch.

Every kind of error is a class: a caller can tell what went wrong without reading the message.
The message is a sentence for a person; `EmulatorError.where` adds kernel, CTA, thread and the PTX
line when they are known.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar


@dataclass(frozen=True)
class SourceLocation:
    """Place of a fault. `cta` and `thread` are (x, y, z); `line` counts from 1 in the PTX text."""

    kernel: str
    line: int | None = None
    instruction: str | None = None
    cta: tuple[int, int, int] | None = None
    thread: tuple[int, int, int] | None = None

    def __str__(self) -> str:
        parts = [f"kernel {self.kernel}"]
        if self.cta is not None:
            parts.append(f"CTA {self.cta}")
        if self.thread is not None:
            parts.append(f"thread {self.thread}")
        text = ", ".join(parts)
        if self.line is not None:
            text += f"\n  PTX line {self.line}: {self.instruction or ''}".rstrip()
        return text


class EmulatorError(Exception):
    """Base of all errors of the emulator. `str(error)` is the sentence, the place, the hint.

    code: the kind of error, for programs.
    """

    code: ClassVar[str] = "emulator_error"

    def __init__(
        self, message: str, *, where: SourceLocation | None = None, hint: str | None = None
    ) -> None:
        super().__init__(message)
        self.message = message
        self.where = where
        self.hint = hint

    def at(self, where: SourceLocation) -> EmulatorError:
        """Fill in the place unless it is known; returns self, to be raised."""
        if self.where is None:
            self.where = where
        return self

    def because(self, consequence: str) -> EmulatorError:
        """The same error with what follows from it."""
        return type(self)(f"{self.message}; {consequence}", where=self.where, hint=self.hint)

    def __str__(self) -> str:
        text = self.message
        if self.where is not None:
            text += f"\n  in {self.where}"
        if self.hint is not None:
            text += f"\n  hint: {self.hint}"
        return text


class PtxSyntaxError(EmulatorError):
    """The text is not PTX as this front end reads it."""

    code = "ptx_syntax"


class UnsupportedInstruction(EmulatorError):
    """A PTX instruction, modifier or special register that is not emulated."""

    code = "unsupported_instruction"


class LaunchError(EmulatorError):
    """Grid, block, parameters or shared memory that no device would accept."""

    code = "launch_refused"


class MemoryFault(EmulatorError):
    """Base of the errors about an address."""

    code = "memory_fault"


class OutOfBounds(MemoryFault):
    """An access outside every live tensor, or outside the CTA's shared or local memory."""

    code = "out_of_bounds"


class Misaligned(MemoryFault):
    """An address that is not a multiple of the access's size."""

    code = "misaligned"


class ReadOnlyMemory(MemoryFault):
    """A write to constant memory, to parameters or to a tensor that cannot be written."""

    code = "read_only_memory"


class UninitialisedShared(MemoryFault):
    """A read of shared memory that no thread has written."""

    code = "unwritten_shared"


class SharedRace(MemoryFault):
    """Two threads touched one shared byte, one of them writing, with no barrier between."""

    code = "shared_race"


class GlobalRace(MemoryFault):
    """Two threads touched one byte of global memory, one of them writing, in no order."""

    code = "global_race"


class UninitialisedRegister(EmulatorError):
    """A register was read before any instruction set it."""

    code = "unset_register"


class Deadlock(EmulatorError):
    """No thread can go on: all wait at barriers that no thread can complete."""

    code = "deadlock"


class BarrierMisuse(EmulatorError):
    """A barrier or mbarrier used against its rules (counts, divergence, uninitialised)."""

    code = "barrier_misuse"


class MissingWarpSync(BarrierMisuse):
    """Lanes of a warp rely on running together: a member mask without the lane that executes the
    instruction, or a lane's word that another lane takes with no __syncwarp between."""

    code = "warp_sync"


class DeviceTrap(EmulatorError):
    """The kernel executed `trap` or called `__assertfail`."""

    code = "trap"


class RunawayKernel(EmulatorError):
    """The launch executed more instructions than its limit allows."""

    code = "runaway_kernel"


class TensorMapError(EmulatorError):
    """A tensor map (TMA descriptor) that breaks the rules of its encode call."""

    code = "tensor_map"
