"""What `nvfp4 debug` asks of the worker, as a record like those of ``messages``."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class WatchedCall:
    """Call custom_kernel once as ``Call`` does, and note who writes c[row, 0, batch]: the answer's
    launches are those threads, the last one last."""

    row: int
    batch: int
