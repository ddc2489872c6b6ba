"""Costs of the kernels of a call by line: the emulator counts it, `nvfp4 explain` shows it."""

from collections.abc import Iterator
from dataclasses import field

from nvfp4.records.base import Record
from nvfp4.records.failures import Finding
from nvfp4.records.launch import Dim3
from nvfp4.records.prediction import Prediction

slots_a_pass = 4
"""An SM issues four warp instructions in the cycle of one pass of shared memory, or of four sectors
of global memory."""


class AccessCost(Record):
    """The accesses of a line with one opcode and one stride.

    The counts are defined in `emulator.state.tally.SiteTally`; the conflict is the worst one.
    """

    opcode: str
    nbytes: int
    requests: int
    sectors: int
    least_sectors: int
    passes: int
    least_passes: int
    repeats: int
    moves: int
    stride_bytes: int | None
    conflict_ways: int | None = None
    conflict_bank: int | None = None
    conflict_lanes: list[int] = field(default_factory=list)


class ReadCost(Record):
    """Reads of a buffer by a line."""

    buffer: str
    requested_bytes: int
    """Bytes of all requests of warps; a request counts each byte once."""
    distinct_bytes: int
    """Number of different bytes."""

    @property
    def times(self) -> float:
        """Number of times that a byte is loaded, on average."""
        return self.requested_bytes / max(self.distinct_bytes, 1)


class LineCost(Record, frozen=False):
    """Counts of a line over the launch."""

    file: str | None
    """A file of the user's; None, like the line, for code whose line is unknown."""
    line: int | None
    instructions: int = 0
    """Warp instructions."""
    lanes: int = 0
    """Active threads, summed over the warp instructions."""
    divergences: int = 0
    """Branches at which a warp's threads went different ways."""
    tensor_cycles: int = 0
    """Cycles for which tensor cores are busy with the line's products."""
    idle: float = 0.0
    """Warp instructions that would be saved if threads that diverge here did everything
    together."""
    callers: list[int] = field(default_factory=list)
    """The nearest lines of the same file into which the code of this line was inlined."""
    opcodes: dict[str, int] = field(default_factory=dict)
    """Warp instructions by opcode."""
    accesses: list[AccessCost] = field(default_factory=list)
    reads: list[ReadCost] = field(default_factory=list)
    us: float | None = None
    """The line's part of the predicted time; None if unknown."""
    without_us: float | None = None
    """The predicted time if the line cost nothing; None if unknown."""
    tensor_products: int = 0
    """Products of tensor cores."""
    tensor_bytes: int = 0
    """Bytes to and from tensor memory."""

    def total(self, name: str) -> int:
        """Sum a count over all accesses, such as ``sectors`` or ``least_sectors``."""
        return sum(getattr(each, name) for each in self.accesses)

    @property
    def slots(self) -> float:
        """The cost: issue slots of an SM, of which a sector takes one."""
        return self.instructions + self.total("sectors") + slots_a_pass * self.total("passes")


class Code(Record):
    """An instruction of PTX or SASS at a line of source."""

    file: str | None
    line: int | None
    text: str
    count: int | None = None
    """The number of warps that ran it; None for SASS."""


class KernelCounts(Record):
    """The counts of a kernel's launches, by line of source.

    Repeated reads of the same bytes are counted only in the CTAs that ran.
    """

    kernel: str
    grid: Dim3
    block: Dim3
    shared_bytes: int
    local_bytes: int
    ctas_run: int
    ctas_total: int
    """All CTAs, to which the counts are scaled."""
    launches: int
    instructions: int
    lines: list[LineCost]


class Kernel(KernelCounts):
    """The costs of a kernel, with what assembling it and the model say."""

    assembled_registers: int | None
    """Registers of a thread after assembly; None without ptxas."""
    spilled_bytes: int | None
    ptx: list[Code]
    sass: list[Code]
    no_sass: str | None
    """Why there is no SASS."""
    predicted: Prediction | None = None
    findings: list[Finding] = field(default_factory=list)
    """Findings that advise, with their lines."""

    def total(self, name: str) -> int:
        """Sum a count over all lines, such as ``tensor_cycles`` of all multiprocessors together."""
        return sum(getattr(line, name) for line in self.lines)

    def place(self, line: LineCost) -> str:
        """Name a line, by its file, too, where the kernel has lines of several."""
        several = len({each.file for each in self.lines if each.file}) > 1
        return f"{line.file}:{line.line}" if several else f"line {line.line}"

    @property
    def slots(self) -> float:
        """The cost of all lines."""
        return sum(line.slots for line in self.lines)


def all_lines(kernels: list[Kernel]) -> Iterator[tuple[Kernel, LineCost]]:
    """Every line of every kernel."""
    return ((kernel, line) for kernel in kernels for line in kernel.lines)
