"""Every instruction that is not arithmetic; importing this package fills the table."""

from nvfp4.emulator.engine.instructions import (
    access,
    atomics,
    barrier,
    bulk,
    calls,
    copies,
    hints,
    mbarrier,
    moves,
    warp,
)

__all__ = [
    "access",
    "atomics",
    "barrier",
    "bulk",
    "calls",
    "copies",
    "hints",
    "mbarrier",
    "moves",
    "warp",
]
