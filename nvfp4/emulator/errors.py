"""Everything that stops an emulated launch.

Every kind of error is a class: a caller can tell what went wrong without reading the message.
The message is a sentence for a person; `EmulatorError.where` adds the line of the source, the PTX
line, kernel, CTA and thread when they are known.
"""

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

from nvfp4.records.base import Record
from nvfp4.records.source import SourceLine, heading, is_library, shown
from nvfp4.records.texts import readable, short_name

_DATA_RACES = (
    "PTX ISA, Conflict and Data-races: accesses that overlap, one of them a write, race unless "
    "causality order relates them"
)
_INITIAL_VALUES = (
    "PTX ISA, Initializers: only variables in constant and global memory are initialised"
)


class SourceLocation(Record):
    """Place of a fault."""

    kernel: str
    line: int | None = None
    """Line of the PTX text, from 1."""
    instruction: str | None = None
    cta: tuple[int, int, int] | None = None
    thread: tuple[int, int, int] | None = None
    source: SourceLine | None = None
    """The line that the instruction was compiled from, with those it was inlined into."""
    grid: tuple[int, int, int] | None = None
    """Extent of the launch's grid."""
    block: tuple[int, int, int] | None = None
    """Extent of the launch's blocks."""

    @property
    def user(self) -> SourceLine | None:
        """The innermost line of the user's own code; None if only a line of a library is known."""
        return self.source.users() if self.source else None

    def record(self) -> dict[str, Any]:
        """Return a dictionary of file, line, ptx_line, cta and thread, with None for what is
        unknown."""
        return {
            "file": shown(self.user.file) if self.user else None,
            "line": self.user.line if self.user else None,
            "ptx_line": self.line,
            "cta": self.cta,
            "thread": self.thread,
        }

    def lines(self, kind: str, message: str, code: str | None = None) -> Iterator[str]:
        """Yield a message at the user's line, or at the PTX line if no other is known, and the
        lines that the code was inlined into."""
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
        """Return the kernel in words, and the CTA and thread if they are known."""
        parts = [f"  in kernel {short_name(self.kernel)}"]
        places = ("CTA", self.cta, self.grid), ("thread", self.thread, self.block)
        for name, index, extent in places:
            if index is not None:
                parts.append(f"{name} {index}" + (f" of {extent}" if extent else ""))
        return ", ".join(parts)


class Seen(Record):
    """One of the two accesses of a race."""

    space: str
    """global or shared."""
    address: int
    """Address in the state space, not a generic one."""
    nbytes: int
    cta: int
    """Linear number of the CTA."""
    thread: int
    """Linear number of the thread; the block's size stands for the copy engine."""
    line: int
    """Line of the PTX text."""
    other: tuple[int, int]
    """(CTA, thread) of the other access."""
    home: int = -1
    """The CTA whose shared memory was accessed."""


class Related(Record):
    """Another place that belongs to a fault, and what happened there."""

    message: str
    where: SourceLocation


class EmulatorError(Exception):
    """A request to the emulated GPU that no front end makes; the base of the emulator's errors.

    arguments: numbers and names in the message, for programs. related: other places that belong to
    the error. output: text that the kernel had printed. seen: for a race, the access, until
    `related` names the other one.
    """

    code: ClassVar[str] = "emulator_error"
    """The kind of error, for programs; each class names its own, or has its base's."""
    refusal: ClassVar[bool] = False
    """Whether the error is about something that is not emulated rather than about the kernel; see
    docs/emulator.md."""
    rule: ClassVar[str | None] = None
    """The manual's section and its rule in our words; None if no rule applies."""

    def __init_subclass__(cls, code: str | None = None) -> None:
        cls.code = code or cls.code

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

    def at(self, where: SourceLocation) -> "EmulatorError":
        """Fill in the place unless it is known; returns self, to be raised."""
        if self.where is None:
            self.where = where
        return self

    def leading_to(self, consequence: str) -> "EmulatorError":
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

        launched: the line of the user's code that launched the kernel; the place of the error if
        no other is known.
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
        advice = ("rule", self.rule), ("hint", self.hint)
        lines += [f"  {name}: {said}" for name, said in advice if said is not None]
        return readable("\n".join(lines))

    def __str__(self) -> str:
        return self.rendered()


class PtxSyntaxError(EmulatorError, code="ptx_syntax"):
    """PTX that this front end cannot parse although the assembler accepts it."""

    refusal = True


class UnsupportedInstruction(EmulatorError, code="unsupported_instruction"):
    """A PTX instruction, modifier or special register that is not emulated."""

    refusal = True


class EmulatorFailed(EmulatorError, code="emulator_failed"):
    """A fault in the emulator itself, which should be reported."""

    refusal = True


class LaunchError(EmulatorError, code="launch_refused"):
    """Grid, block, parameters or shared memory that no device would accept."""


class NotAdmitted(LaunchError):
    """A launch that the driver would refuse by the judge's own check."""


class MemoryFault(EmulatorError, code="memory_fault"):
    """Base of the errors about an address."""


class OutOfBounds(MemoryFault, code="out_of_bounds"):
    """An access outside every live tensor, or outside the CTA's shared or local memory."""


class Misaligned(MemoryFault, code="misaligned"):
    """An address that is not a multiple of the access's size."""


class ReadOnlyMemory(MemoryFault, code="read_only_memory"):
    """A write to constant memory, to parameters or to a tensor that cannot be written."""


class UninitialisedShared(MemoryFault, code="unwritten_shared"):
    """A read of shared memory that no thread has written."""

    rule = _INITIAL_VALUES


class TensorMemoryFault(MemoryFault, code="tensor_memory"):
    """Tensor memory that is not the CTA's or the warp's own, or that is never given back."""


class TensorDescriptorFault(MemoryFault, code="tensor_descriptor"):
    """A descriptor of a tensor core instruction that contradicts it, or the memory it names."""


class UnwrittenTensor(UninitialisedShared, code="unwritten_tensor"):
    """A read of tensor memory that nothing has written."""

    rule = "PTX ISA, Tensor Memory Allocation: allocated columns are not initialised"


class TensorRace(MemoryFault, code="tensor_race"):
    """Memory that a tensor core uses is accessed while its operation may still be under way, as no
    thread has waited for it."""

    rule = (
        "PTX ISA, Memory Consistency Model for 5th generation of TensorCore operations: "
        "asynchronous operations are complete only after a wait for them"
    )


class MissingTensorFence(MemoryFault, code="tensor_fence"):
    """Operations on tensor memory by different threads have only a barrier between them, which
    needs tcgen05.fence before and after it."""

    rule = (
        "PTX ISA, Canonical synchronization patterns of tcgen05: a barrier orders operations of "
        "different threads only between two fences"
    )


class MismatchedSwizzle(MemoryFault, code="tensor_swizzle"):
    """A tensor core reads shared memory with a different swizzle than it was written with."""

    rule = (
        "PTX ISA, Shared memory descriptor: bits 61-63 are the swizzling mode in which the matrix "
        "lies in shared memory"
    )


class SharedRace(MemoryFault, code="shared_race"):
    """Two threads touched one shared byte, one of them writing, with no barrier between."""

    rule = _DATA_RACES


class MissingProxyFence(MemoryFault, code="proxy_fence"):
    """Threads and the copy engine access the same shared memory without fence.proxy.async in
    between.

    A barrier alone does not order such accesses. Also: the copy engine reads a tensor map that the
    kernel has changed.
    """

    rule = (
        "PTX ISA, Async Proxy: bulk copies access memory through their own proxy; "
        "fence.proxy.async, of tensor maps fence.proxy.tensormap, orders them with accesses of "
        "threads"
    )


class ExitedPeer(MemoryFault, code="exited_peer"):
    """A CTA accesses shared memory of another CTA in its cluster that may have ended."""

    rule = (
        "CUDA C++ Programming Guide, Distributed Shared Memory: a block must not exit before "
        "all accesses to its shared memory are done"
    )


class UnbegunPeer(MemoryFault, code="unbegun_peer"):
    """A CTA accesses shared memory of another CTA in its cluster that may not have begun."""

    rule = "CUDA C++ Programming Guide, Distributed Shared Memory: all blocks must have begun"


class GlobalRace(MemoryFault, code="global_race"):
    """Two threads touched one byte of global memory, one of them writing, in no order."""

    rule = _DATA_RACES


class UnwaitedStore(MemoryFault, code="unwaited_store"):
    """A bulk copy out of shared memory that its thread never waits for."""

    rule = (
        "PTX ISA, Completion Mechanisms for Asynchronous Copy Operations: no thread may change "
        "the source of a copy until a thread has waited for its completion"
    )


class UnwaitedLoad(MemoryFault, code="unwaited_load"):
    """A bulk copy into shared memory that no thread of its cluster waits for."""

    rule = (
        "PTX ISA, Completion Mechanisms for Asynchronous Copy Operations: a copy is complete when "
        "a thread has seen the phase of its mbarrier complete, and writes until then"
    )


class EarlyAccess(MemoryFault, code="early_access"):
    """A launch that may begin early accesses what the previous launch in the stream writes, without
    waiting for that."""

    rule = (
        "PTX ISA, griddepcontrol: only behind griddepcontrol.wait are the launches before this one "
        "complete and what they have written visible"
    )


class MissingFence(MemoryFault, code="missing_fence"):
    """A CTA reads what another CTA wrote without a fence between the write and the atomic or flag
    that announces it."""

    rule = (
        "PTX ISA, Release and Acquire Patterns: earlier writes are visible to a thread that "
        "sees the atomic only if that is a release, or a fence comes before it"
    )


class ReadOnlyLoad(MemoryFault, code="read_only_load"):
    """ld.global.nc reads what the same launch has written."""

    rule = (
        "PTX ISA, ld.global.nc: it may use a cache that is not coherent, so what it reads should "
        "be read-only for the whole kernel"
    )


class UninitialisedRegister(EmulatorError, code="unset_register"):
    """A register was read before any instruction set it."""

    rule = _INITIAL_VALUES


class InactiveSource(UninitialisedRegister):
    """Use of a register that a shuffle set from a lane which did not execute the shuffle."""

    rule = (
        "PTX ISA, shfl.sync: the result is undefined if a thread reads from an inactive thread, or "
        "from one that is not in membermask"
    )


class Deadlock(EmulatorError, code="deadlock"):
    """No thread can go on: all wait at barriers that no thread can complete."""


class BarrierMisuse(EmulatorError, code="barrier_misuse"):
    """A barrier or mbarrier used against its rules (counts, divergence, uninitialised)."""


class NoArrivals(BarrierMisuse, code="no_arrivals"):
    """An mbarrier initialised with a count of 0: a B200 accepts it, but no manual says when its
    phases end."""


class MissingWarpSync(BarrierMisuse, code="warp_sync"):
    """Lanes of a warp rely on running in lockstep.

    Either a lane is missing from the member mask of an instruction that it executes, or a lane
    reads what another one wrote with no __syncwarp in between.
    """

    rule = (
        "PTX ISA, shfl.sync, and likewise vote.sync, match.sync, redux.sync and bar.warp.sync: "
        "undefined if the executing thread is not in membermask"
    )


class UnorderedLanes(MissingWarpSync):
    """Two lanes of a warp access the same bytes, one writing, with no synchronisation between."""

    rule = (
        "PTX ISA, bar.warp.sync: threads of a warp that communicate through memory execute it in "
        "between, which orders their accesses"
    )


class OrderDependence(EmulatorError, code="order_dependent"):
    """The result depends on the order in which warps and CTAs run.

    The reason is that the values which threads see through atomics or barriers depend on it.
    """

    rule = (
        "CUDA C++ Programming Guide, Thread Hierarchy: thread blocks may run in any order, in "
        "parallel or in series"
    )


class DeviceTrap(EmulatorError, code="trap"):
    """The kernel executed `trap` or called `__assertfail`."""


class RunawayKernel(EmulatorError, code="runaway_kernel"):
    """The launch executed more instructions than its limit allows.

    starved: whether its CTAs wait forever for CTAs that have not started. endless: whether all have
    started, and nothing can change any more.
    """

    starved = endless = False


class TooSlow(RunawayKernel, code="too_slow"):
    """The remaining CTAs would exceed the time limit, judging by those that have run."""


class TensorMapError(EmulatorError, code="tensor_map"):
    """A tensor map (TMA descriptor) that breaks the rules of its encode call."""
