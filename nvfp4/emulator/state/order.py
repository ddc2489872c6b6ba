"""The order in which CTAs and warps run, and the contents of uninitialised memory."""

from collections.abc import Sequence
from dataclasses import field
from functools import lru_cache
from typing import Literal

import numpy as np

from nvfp4.emulator.ptx.types import Array
from nvfp4.records.base import Record

# Turns in which the CTAs of a batch run; within a turn they run concurrently.
CTA_TURNS = 8


@lru_cache(maxsize=8)
def _noise(salt: int, nbytes: int) -> Array:
    return np.frombuffer(np.random.default_rng((0, salt)).bytes(nbytes), np.uint8)


@lru_cache(maxsize=32)
def _mixed(warps: int) -> Array:
    """Return the numbers of the warps of a CTA, the first and the last in their places and those
    between in a random order: int64[warps]. Forwards and backwards, each warp comes before each
    other one."""
    between = np.random.default_rng(warps).permutation(np.arange(1, warps - 1))
    return np.concatenate(([0], between, [warps - 1]))[:warps]


class Order(Record):
    """One legal way to run a launch."""

    number: int = 0
    """0 runs all warps of a batch side by side, in the order of their numbers. The others run them
    one after the other: 1 the CTAs from first to last, neighbouring ones but the last side by side
    unless there are clusters, and their warps mixed; 2 both the other way round, also the CTAs of a
    cluster, distant ones side by side; 3 one warp of each CTA before all other warps, in a random
    order of CTAs, and what the others store as late as may be if that warp draws a ticket."""
    values: int = 0
    """Contents of unset registers and unwritten shared memory: 0 is noise; 1 its complement, in
    which every bit differs; 2 zeros, which hardware often has there."""
    early: bool = False
    """Whether a programmatic launch begins before the previous launch has written anything."""
    late: Literal["", "overwriting", "told"] = ""
    """Which threads wait for all others: those that store or exchange a word that others see at
    once, or those that have just done what others may wait for, where turns are drawn. Among
    several such threads, those that are further on in the program go first."""
    behind: int = -1
    """If not negative, the first CTAs wait for all others behind this one of the blocks `told`."""
    told: Sequence[int] = field(default=(), compare=False)
    """The last blocks in which the first CTA tells others something."""
    lead: int = field(default=-1, compare=False)
    """The warp of each CTA that draws a ticket, or tells other CTAs something else, and so comes
    first in order 3; -1 if none does."""
    late_stores: bool = False
    """Whether bulk stores read shared memory as late as they may, and not when they are issued."""

    def ctas(self, numbers: Array) -> Array:
        """Return linear CTA numbers in the order in which their batches run."""
        if self.number == 2:
            return numbers[::-1].copy()
        return self._random().permutation(numbers) if self.number == 3 else numbers

    def turns(self, cta: Array, warp: Array, ctas: int, warps: int, size: int) -> Array | None:
        """Return when each lane's warp has its turn within the batch; None if all run at once.

        cta, warp: the lane's CTA in the batch, and its warp in the CTA. ctas, warps: how many.
        size: CTAs of a cluster.
        """
        if self.number == 0:
            return None
        # The clusters are in this order already: see `ctas`.
        rows, turns = np.arange(ctas), min(ctas, max(CTA_TURNS, size))
        if self.number == 3 and warps > 1:
            later = 1 + self._random().permutation(ctas) % turns
            # The last CTA draws last, and the last turn comes first of those that are late.
            swapped = [int(later.argmax()), ctas - 1]
            later[swapped] = later[swapped[::-1]]
            return np.where(warp == max(self.lead, 0), 0, later[cta]).astype(np.int64)
        mixed = _mixed(warps)
        if self.number == 2:
            rows, mixed = rows.reshape(-1, size)[:, ::-1].reshape(-1), mixed[::-1]
        if self.number == 2:  # the halves of a grid, which may wait for each other, share no turns
            cta_turn = rows % (turns + 1)
        elif size > 1:
            cta_turn = rows % turns
        else:  # the last one alone: two that draw tickets in one step are never told apart
            cta_turn = rows * (turns - 1) // max(ctas - 1, 1)
        turn: Array = cta_turn[cta] * warps + np.argsort(mixed)[warp]
        return turn.astype(np.int64)

    @property
    def shifts_copies(self) -> bool:
        """Whether bulk copies to shared memory complete when their mbarrier is tested, and cp.async
        at once; otherwise bulk copies complete at once, and cp.async when it is waited for."""
        return self.number % 2 == 1

    @property
    def late_pipe(self) -> bool:
        """Whether tensor cores work as late as they may, and not at once. With each way of copies
        there is an order of both kinds."""
        return self.number in (1, 2)

    def bytes(self, nbytes: int, salt: int = 0) -> Array:
        """Return the contents of uninitialised memory: uint8[nbytes]."""
        if self.values == 2:
            return np.zeros(nbytes, np.uint8)
        noise = _noise(salt, nbytes)
        return ~noise if self.values else noise.copy()

    def _random(self) -> np.random.Generator:
        return np.random.default_rng(self.number)
