"""What a launch executed, counted."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any

from nvfp4.emulator.findings import Finding
from nvfp4.emulator.names import short_name


@dataclass
class LaunchReport:
    """Counts of one launch.

    warp_instructions: PTX instructions by kind, each counted once a warp that executes it, guarded
        off or not. Bytes are what the lanes asked for. A sector has 32 bytes: sectors_requested
        counts distinct ones within each warp's request, sectors_read and sectors_written distinct
        ones over the whole launch (what DRAM must deliver and take with a cold, perfect cache);
        sectors_distinct counts those read or written. bank_conflicts: extra passes of shared
        accesses. divergent_branches: branches at which a warp diverged.
    extrapolated: only a sample of the CTAs ran; everything but ctas_run, seconds and output is
        scaled by ctas_total / ctas_run.
    ptx, block_runs: what `emulator.listing` needs, and no part of the dictionary: the text of the
        module, and (instructions, warps that ran them) of each basic block, in program order.
    seconds: time the emulation took on the host; says nothing about a GPU.
    """

    kernel: str
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    shared_bytes: int
    ctas_run: int
    ctas_total: int
    extrapolated: bool = False
    warp_instructions: dict[str, int] = field(default_factory=dict)
    global_read_bytes: int = 0
    global_written_bytes: int = 0
    global_requests: int = 0
    sectors_requested: int = 0
    sectors_distinct: int = 0
    sectors_read: int = 0
    sectors_written: int = 0
    shared_bytes_read: int = 0
    shared_bytes_written: int = 0
    shared_requests: int = 0
    bank_conflicts: int = 0
    divergent_branches: int = 0
    atomics: int = 0
    barriers: int = 0
    seconds: float = 0.0
    output: str = ""
    findings: list[Finding] = field(default_factory=list)
    ptx: str = field(default="", repr=False)
    block_runs: list[tuple[int, int]] = field(default_factory=list, repr=False)

    @property
    def warp_instructions_total(self) -> int:
        return sum(self.warp_instructions.values())

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        plain = asdict(replace(self, block_runs=[]))
        del plain["ptx"], plain["block_runs"]
        return plain | {
            "short_name": short_name(self.kernel),
            "warp_instructions_total": self.warp_instructions_total,
        }

    def scale(self, factor: float) -> None:
        """Extrapolate every count to the whole grid."""
        self.extrapolated = True
        self.warp_instructions = {k: round(v * factor) for k, v in self.warp_instructions.items()}
        self.block_runs = [(size, round(runs * factor)) for size, runs in self.block_runs]
        for name in _SCALED:
            setattr(self, name, round(getattr(self, name) * factor))


_UNSCALED = ("shared_bytes", "ctas_run", "ctas_total")
_SCALED = [f.name for f in fields(LaunchReport) if f.type == "int" and f.name not in _UNSCALED]
