"""Kernels whose tensor cores are fed by the copy engine: the slowest of the concurrent units.

Warps of such a kernel wait for each other by mbarriers, which the simulation of an SM hardly
models. The copies and products of a thread block are known nevertheless, and so is their time.
"""

import re
from collections import Counter

from nvfp4.emulator.work import Work
from nvfp4.model.gpu import Gpu
from nvfp4.model.traffic import Access


def executed(ptx: str, work: Work, opcode: str) -> int:
    """Count how often warps execute statements with an opcode that begins like this."""
    statement = re.compile(rf"(@!?%?\w+\s+)?{re.escape(opcode)}")
    warps = Counter(kind for cta in work.of_cta.values() for kind in work.ctas[cta])
    return sum(
        times * runs
        for kind, times in warps.items()
        for start, runs in work.by_statement(kind).items()
        if runs and statement.match(ptx, max(start, 0))
    )


def slowest(
    gpu: Gpu,
    ptx: str,
    work: Work,
    accesses: dict[int, Access],
    share: float,
    cycles_a_byte: float,
) -> tuple[str, float]:
    """Return the unit that takes the most cycles of an SM, and the cycles; 0 if the launch executes
    no product. share: the share of the launch's CTAs that the SM runs. cycles_a_byte: of memory, at
    its number of bytes in flight."""
    products = executed(ptx, work, "tcgen05.mma.")
    if not products:
        return "tensor", 0.0
    copied = sum(each.copied for each in accesses.values())
    found = {"memory_bandwidth": copied * cycles_a_byte, "tensor": products * gpu.tcgen05}
    reason = max(found, key=found.__getitem__)
    return reason, found[reason] * share
