"""Counts of what a launch executed, and its findings: what the manual forbids and hardware
tolerates."""

from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from nvfp4.emulator.errors import EmulatorError, SourceLocation
from nvfp4.emulator.work import Work
from nvfp4.records.failures import Finding, Place
from nvfp4.records.launch import Note
from nvfp4.records.source import shown
from nvfp4.records.texts import short_name

_RULES_OF_NOTES = {
    "stream.unordered": "CUDA C++ Programming Guide, Streams: commands of different streams may "
    "run out of order with respect to one another, or at the same time"
}

Origin = tuple[str, str | None, int | None]
"""Code, file and line of a finding; the line of the PTX if no file is known."""


class Findings:
    """The findings of a launch: the first occurrence at each place, the others counted.

    A place is a line of the user's source where that is known, else a line of the PTX.
    """

    def __init__(self) -> None:
        self._first: dict[Origin, EmulatorError] = {}
        self._counts: dict[Origin, int] = {}

    def __bool__(self) -> bool:
        return bool(self._first)

    def __iter__(self) -> Iterator[EmulatorError]:
        """The first occurrences, in the order in which they were found."""
        return iter(self._first.values())

    def note(self, error: EmulatorError, count: int = 1) -> None:
        """Add an occurrence: `count` threads did what the error says."""
        place = place_of(error)
        self._first.setdefault(place, error)
        self._counts[place] = self._counts.get(place, 0) + count

    def records(self, kernel: str) -> list[Finding]:
        """Return a record for each place, with the CTA and thread of the first occurrence and how
        many threads all occurrences had, in the order in which they were found."""
        records = []
        for place, error in self._first.items():
            where = (error.where or SourceLocation(kernel)).record()
            del where["ptx_line"]
            related = [Place(each.message, **each.where.record()) for each in error.related]
            texts = error.code, error.message, kernel
            rule, count = error.rule, self._counts[place]
            where |= {"hint": error.hint, "rule": rule, "count": count, "related": related}
            records.append(Finding(*texts, **where))
        return records


def place_of(error: EmulatorError) -> Origin:
    """Return the place by which findings of a kind are counted together."""
    where = error.where
    if where is None:
        return error.code, None, None
    user = where.user
    return (error.code, user.file, user.line) if user else (error.code, None, where.line)


def noted(note: Note, kernel: str) -> Finding:
    """Return a note that was made before a launch as one of its findings."""
    return Finding(
        code=note.code,
        message=note.message,
        kernel=kernel,
        file=shown(note.file) if note.file else None,
        line=note.line,
        hint=note.hint,
        count=1,
        rule=_RULES_OF_NOTES.get(note.code),
    )


@dataclass
class Traffic:
    """Counts of memory accesses and of other work, kept while a launch runs. Bytes are those that
    lanes asked for."""

    global_read_bytes: int = 0
    global_written_bytes: int = 0
    global_requests: int = 0
    sectors_requested: int = 0
    """Distinct sectors of 32 bytes within each warp's request."""
    shared_bytes_read: int = 0
    shared_bytes_written: int = 0
    shared_requests: int = 0
    peer_bytes_read: int = 0
    """Bytes read from shared memory of other CTAs (distributed shared memory)."""
    peer_bytes_written: int = 0
    """Bytes written to shared memory of other CTAs."""
    bank_conflicts: int = 0
    """Extra passes of shared accesses."""
    divergent_branches: int = 0
    """Branches at which a warp diverged."""
    atomics: int = 0
    barriers: int = 0
    tensor_instructions: int = 0
    """Matrix products by tcgen05.mma."""
    tensor_cycles: int = 0
    """Cycles for which these keep tensor cores busy, from published rates."""
    tensor_bytes_read: int = 0
    """Bytes from tensor memory to registers or shared memory."""
    tensor_bytes_written: int = 0
    """Bytes from registers or shared memory to tensor memory."""

    def count(self, memory: str, writes: bool, nbytes: int) -> None:
        """Add bytes written to global, shared, peer or tensor memory, or read from there."""
        how = "written" if writes else "read"
        name = f"global_{how}_bytes" if memory == "global" else f"{memory}_bytes_{how}"
        setattr(self, name, getattr(self, name) + nbytes)


@dataclass(kw_only=True)
class LaunchReport(Traffic):
    """Counts of one launch."""

    kernel: str
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    shared_bytes: int
    ctas_run: int
    ctas_total: int
    warp_instructions: dict[str, int] = field(default_factory=dict)
    """PTX instructions by kind, counted once for each warp that executes them, guarded off or
    not."""
    sectors_distinct: int = 0
    """Distinct sectors that the launch read or wrote."""
    sectors_read: int = 0
    """Distinct sectors that the launch read: those that DRAM must deliver with a cold, perfect
    cache."""
    sectors_written: int = 0
    """Distinct sectors that the launch wrote."""
    seconds: float = 0.0
    """Time that emulation took on the host, which says nothing about a GPU."""
    output: str = ""
    findings: list[Finding] = field(default_factory=list)
    work: Work | None = field(default=None, repr=False, compare=False)
    """Counts of executed statements for each warp; left out of `to_dict`."""

    @property
    def warp_instructions_total(self) -> int:
        return sum(self.warp_instructions.values())

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        plain = asdict(replace(self, work=None))
        del plain["work"]
        return plain | {
            "short_name": short_name(self.kernel),
            "warp_instructions_total": self.warp_instructions_total,
        }
