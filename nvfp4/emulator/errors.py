"""Everything that stops an emulated launch.

Every kind of error is a class: a caller can tell what went wrong without reading the message.
The message is a sentence for a person; `EmulatorError.where` adds the line of the source, the PTX
line, kernel, CTA and thread when they are known.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from nvfp4.records.source import SourceLine, heading, is_library, shown
from nvfp4.records.texts import readable, short_name

_DATA_RACES = (
    "PTX ISA, Conflict and Data-races: accesses that overlap, one of them a write, race unless "
    "causality order relates them"
)
_INITIAL_VALUES = (
    "PTX ISA, Initializers: only variables in constant and global memory have a value to begin with"
)


@dataclass(frozen=True)
class SourceLocation:
    """Place of a fault.

    line: in the PTX text, from 1. cta, thread: (x, y, z). source: the line that the instruction
    was compiled from, with those it was inlined into. grid, block: of the launch.
    """

    kernel: str
    line: int | None = None
    instruction: str | None = None
    cta: tuple[int, int, int] | None = None
    thread: tuple[int, int, int] | None = None
    source: SourceLine | None = None
    grid: tuple[int, int, int] | None = None
    block: tuple[int, int, int] | None = None

    @property
    def user(self) -> SourceLine | None:
        """The innermost line of the user's own code; None where only a library's is known."""
        return self.source.users() if self.source else None

    def record(self) -> dict[str, Any]:
        """file, line, ptx_line, cta, thread; None where something is not known."""
        return {
            "file": shown(self.user.file) if self.user else None,
            "line": self.user.line if self.user else None,
            "ptx_line": self.line,
            "cta": self.cta,
            "thread": self.thread,
        }

    def lines(self, kind: str, message: str, code: str | None = None) -> Iterator[str]:
        """A message at the user's line, or at that of the PTX where none is known, with the lines
        that it was inlined into."""
        user = self.user
        yield from heading(user, kind, message, code)
        if user is None:
            if self.source is not None:
                yield f"  {self.source}: in a library; the line that called it is not known"
            if self.line is not None:
                yield f"  PTX line {self.line}: {self.instruction or ''}".rstrip(": ")
            return
        for frame in [frame for frame in user.chain() if not is_library(frame.file)][1:]:
            yield f"  called from {frame}: {frame.text}" if frame.text else f"  called from {frame}"

    def who(self) -> str:
        """The kernel, and the CTA and the thread as far as they are known."""
        parts = [f"  in kernel {short_name(self.kernel)}"]
        for name, index, extent in (
            ("CTA", self.cta, self.grid),
            ("thread", self.thread, self.block),
        ):
            if index is not None:
                parts.append(f"{name} {index}" + (f" of {extent}" if extent else ""))
        return ", ".join(parts)


@dataclass(frozen=True)
class Seen:
    """One access of a race. space: global or shared. address: as the space's instructions use it,
    without windows. cta, thread: linear; thread is the block's size for the copy engine. line: of
    the PTX. other: (CTA, thread) of the other access. home: the CTA whose shared memory it is.
    """

    space: str
    address: int
    nbytes: int
    cta: int
    thread: int
    line: int
    other: tuple[int, int]
    home: int = -1


@dataclass(frozen=True)
class Related:
    """Another place that belongs to a fault, and what is there."""

    message: str
    where: SourceLocation


class EmulatorError(Exception):
    """The submission's process asked the emulated GPU for what no front end asks.

    All other errors of the emulator are derived from it.
    code: the kind of error, for programs. refusal: whether the error is about something that is not
    emulated rather than about the kernel; see docs/emulator.md. rule: the manual's section and its
    rule in our words; None where no rule need be cited. arguments: the numbers and names in the
    message, for programs. related: other places that belong to the error. output: text that the
    kernel had printed. seen: for a race, the access, until `related` names the other one.
    """

    code: ClassVar[str] = "emulator_error"
    refusal: ClassVar[bool] = False
    rule: ClassVar[str | None] = None

    def __init__(
        self,
        message: str,
        *,
        where: SourceLocation | None = None,
        hint: str | None = None,
        arguments: Mapping[str, int | str] | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.where = where
        self.hint = hint
        self.arguments = dict(arguments or {})
        self.related: list[Related] = []
        self.output = ""
        self.seen: Seen | None = None

    def at(self, where: SourceLocation) -> EmulatorError:
        """Fill in the place unless it is known; returns self, to be raised."""
        if self.where is None:
            self.where = where
        return self

    def because(self, consequence: str) -> EmulatorError:
        """Return a copy of this error whose message also names a consequence."""
        message = f"{self.message}; {consequence}"
        error = type(self)(message, where=self.where, hint=self.hint, arguments=self.arguments)
        error.related, error.output, error.seen = self.related, self.output, self.seen
        return error

    def rendered(self, launched: SourceLine | None = None) -> str:
        """Return all that is known, as compilers print it.

        submission.py:26:18: error: read of 16 bytes outside every tensor: ... [out_of_bounds]
        26 |     rA.store(gA[None, 0].load())
           |              ^
        in kernel gemv, CTA (1, 0, 0) of (2, 1, 1), thread (32, 0, 0) of (128, 1, 1)
        hint: ...

        launched: the line of the user's code that launched the kernel; the error's own place where
        it has no other.
        """
        lines: list[str] = []
        if self.where is None:
            lines += heading(launched, "error", self.message, self.code)
        else:
            lines += [*self.where.lines("error", self.message, self.code), self.where.who()]
            if launched is not None:
                text = f": {launched.text}" if launched.text else ""
                lines.append(f"  launched at {launched}{text}")
        for each in self.related:
            lines += each.where.lines("note", each.message)
            if each.where.cta is not None:
                lines.append(each.where.who())
        for name, said in (("rule", self.rule), ("hint", self.hint)):
            if said is not None:
                lines.append(f"  {name}: {said}")
        return readable("\n".join(lines))

    def __str__(self) -> str:
        return self.rendered()


class PtxSyntaxError(EmulatorError):
    """The text is not PTX as this front end reads it; the assembler has taken it."""

    code = "ptx_syntax"
    refusal = True


class UnsupportedInstruction(EmulatorError):
    """A PTX instruction, modifier or special register that is not emulated."""

    code = "unsupported_instruction"
    refusal = True


class EmulatorFailed(EmulatorError):
    """The emulator itself has failed: a fault of its own, which is worth a report."""

    code = "emulator_failed"
    refusal = True


class LaunchError(EmulatorError):
    """Grid, block, parameters or shared memory that no device would accept."""

    code = "launch_refused"


class NotAdmitted(LaunchError):
    """A launch that the driver refuses, as the judge has found out by itself."""


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
    rule = _INITIAL_VALUES


class TensorMemoryFault(MemoryFault):
    """Tensor memory that is not the CTA's or the warp's own, or that is never given back."""

    code = "tensor_memory"


class TensorDescriptorFault(MemoryFault):
    """A descriptor of a tensor core instruction that contradicts it, or the memory it names."""

    code = "tensor_descriptor"


class UnwrittenTensor(UninitialisedShared):
    """A read of tensor memory that nothing has written."""

    code = "unwritten_tensor"
    rule = (
        "PTX ISA, Tensor Memory Allocation: columns that have been allocated hold nothing to begin "
        "with"
    )


class TensorRace(MemoryFault):
    """Tensor memory or shared memory that a tensor core uses is touched while an operation that no
    thread has waited for may still be under way."""

    code = "tensor_race"
    rule = (
        "PTX ISA, Memory Consistency Model for 5th generation of TensorCore operations: "
        "asynchronous operations are complete when a wait has told so"
    )


class MissingTensorFence(MemoryFault):
    """Operations on tensor memory are ordered across threads by a barrier alone, where it takes
    tcgen05.fence before and behind it."""

    code = "tensor_fence"
    rule = (
        "PTX ISA, Canonical synchronization patterns of tcgen05: a barrier orders operations of "
        "other threads between fences only"
    )


class MismatchedSwizzle(MemoryFault):
    """A tensor core reads shared memory by another swizzle than it was written with."""

    code = "tensor_swizzle"
    rule = (
        "PTX ISA, Shared memory descriptor: bits 61-63 are the swizzling mode in which the matrix "
        "lies in shared memory"
    )


class SharedRace(MemoryFault):
    """Two threads touched one shared byte, one of them writing, with no barrier between."""

    code = "shared_race"
    rule = _DATA_RACES


class MissingProxyFence(MemoryFault):
    """Threads and the copy engine access the same shared memory with no fence.proxy.async between:
    a barrier does not make the one's access come before the other's. Or the copy engine reads a
    tensor map that the kernel has changed."""

    code = "proxy_fence"
    rule = (
        "PTX ISA, Async Proxy: bulk copies access memory through a proxy of their own; it takes "
        "fence.proxy.async to order them with accesses of threads"
    )


class ExitedPeer(MemoryFault):
    """A CTA touches shared memory of another one of its cluster that has ended, or may have."""

    code = "exited_peer"
    rule = (
        "CUDA C++ Programming Guide, Distributed Shared Memory: it has to be ensured that a block "
        "does not exit before all accesses to its shared memory are done"
    )


class GlobalRace(MemoryFault):
    """Two threads touched one byte of global memory, one of them writing, in no order."""

    code = "global_race"
    rule = _DATA_RACES


class UnwaitedStore(MemoryFault):
    """A bulk copy out of shared memory that its thread never waits for."""

    code = "unwaited_store"
    rule = (
        "PTX ISA, Completion Mechanisms for Asynchronous Copy Operations: nobody may change the "
        "source of a copy until it completes, and a thread has to wait for that"
    )


class EarlyAccess(MemoryFault):
    """A launch that may begin early touches what the one before it in the stream writes, and has
    not waited for it."""

    code = "early_access"
    rule = (
        "PTX ISA, griddepcontrol: only behind griddepcontrol.wait are the launches before this one "
        "complete and what they have written visible"
    )


class MissingFence(MemoryFault):
    """A CTA reads what another one has written, and no fence lies between that write and the atomic
    or flag that tells of it."""

    code = "missing_fence"
    rule = (
        "PTX ISA, Release and Acquire Patterns: earlier writes are visible to whoever sees the "
        "atomic only if that is a release, or a fence comes before it"
    )


class ReadOnlyLoad(MemoryFault):
    """ld.global.nc reads what the same launch has written."""

    code = "read_only_load"
    rule = (
        "PTX ISA, ld.global.nc: it may use a cache that is not coherent, so what it reads should "
        "be read-only for the whole kernel"
    )


class UninitialisedRegister(EmulatorError):
    """A register was read before any instruction set it."""

    code = "unset_register"
    rule = _INITIAL_VALUES


class InactiveSource(UninitialisedRegister):
    """A register was set by a shuffle from a lane that does not execute it."""

    rule = (
        "PTX ISA, shfl.sync: the result is undefined if a thread reads from an inactive thread, or "
        "from one that is not in membermask"
    )


class Deadlock(EmulatorError):
    """No thread can go on: all wait at barriers that no thread can complete."""

    code = "deadlock"


class BarrierMisuse(EmulatorError):
    """A barrier or mbarrier used against its rules (counts, divergence, uninitialised)."""

    code = "barrier_misuse"


class NoArrivals(BarrierMisuse):
    """An mbarrier that is initialised for no arrivals: a B200 takes it, and no manual says when its
    phases end."""

    code = "no_arrivals"


class MissingWarpSync(BarrierMisuse):
    """Lanes of a warp rely on running together: a member mask without the lane that executes the
    instruction, or a lane's word that another lane takes with no __syncwarp between."""

    code = "warp_sync"
    rule = (
        "PTX ISA, shfl.sync, and likewise vote.sync, match.sync, redux.sync and bar.warp.sync: "
        "undefined if the executing thread is not in membermask"
    )


class UnorderedLanes(MissingWarpSync):
    """A lane of a warp touches what another has touched, one writing, with nothing between."""

    rule = (
        "PTX ISA, bar.warp.sync: threads of a warp that communicate through memory execute it in "
        "between, which orders their accesses"
    )


class OrderDependence(EmulatorError):
    """The result depends on the order in which warps and CTAs run, because what threads see of each
    other through atomics or barriers does."""

    code = "order_dependent"
    rule = (
        "CUDA C++ Programming Guide, Thread Hierarchy: thread blocks may run in any order, in "
        "parallel or in series"
    )


class DeviceTrap(EmulatorError):
    """The kernel executed `trap` or called `__assertfail`."""

    code = "trap"


class RunawayKernel(EmulatorError):
    """The launch executed more instructions than its limit allows.

    starved: its CTAs wait for ever, and others have not started.
    """

    code = "runaway_kernel"
    starved = False


class TooSlow(RunawayKernel):
    """The remaining CTAs would exceed the time limit, judging by those that have run."""

    code = "too_slow"


class TensorMapError(EmulatorError):
    """A tensor map (TMA descriptor) that breaks the rules of its encode call."""

    code = "tensor_map"
