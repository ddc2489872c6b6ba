"""Kernels whose tensor cores are fed by the copy engine: the slowest of what runs side by side.

Each warp of such a kernel has a task of its own, so that the average of a line says little of what
a warp does. What a thread block copies, multiplies and issues is known all the same.
"""

from __future__ import annotations

import re

from nvfp4.model.gpu import Gpu
from nvfp4.model.sass import Code
from nvfp4.model.traffic import Access

_PRODUCT = re.compile(r"UTC\w*MMA")
_SCHEDULERS = 4


def is_pipelined(code: Code) -> bool:
    """Whether a kernel issues `tcgen05.mma`."""
    return any(_PRODUCT.match(each.name) for each in code.instructions)


def slowest(
    gpu: Gpu,
    ptx: list[str],
    runs: dict[int, int],
    accesses: dict[int, Access],
    ctas: float,
    cycles_a_byte: float,
) -> tuple[str, float]:
    """What takes the most cycles of an SM that runs so many of the launch's CTAs, its share being
    `ctas`; and how many. cycles_a_byte: of memory, with what the SM has in flight."""
    copied = sum(runs.get(line, 0) * access.copied for line, access in accesses.items())
    products = sum(runs.get(n, 0) for n, line in enumerate(ptx, 1) if "tcgen05.mma." in line)
    found = {
        "memory_bandwidth": copied * cycles_a_byte,
        "tensor": products * gpu.tcgen05,
        "issue": sum(runs.values()) / _SCHEDULERS,
    }
    reason = max(found, key=found.__getitem__)
    return reason, found[reason] * ctas
