"""The least time that the L2 takes for the atomics of a launch."""

import re

import numpy as np

from nvfp4.emulator.ptx.types import Array
from nvfp4.emulator.updates import Updates
from nvfp4.emulator.work import Work
from nvfp4.model.gpu import Gpu
from nvfp4.model.sass import Code

_FLOAT = re.compile(r"\.add\..*\b(f16|bf16|f32|f64)")
_VOTES = frozenset(("VOTE", "VOTEU"))


def atomics_ns(gpu: Gpu, code: Code, work: Work, ctas: int) -> float:
    """Return the time of updates of the word that takes longest, of all requests of 512 bytes or of
    all of them, whichever is longest. ctas: of the grid, of which `work` may have some only.

    Where the compiler votes which lane updates a word for its warp, updates of warps count; where a
    scan gives each lane its own result, only those of whole warps.
    """
    words, pieces = work.updates
    if pieces is None:
        return 0.0
    scale = ctas / len(work.of_cta)
    opcodes = work.opcodes
    votes = {each.statement for each in code.instructions if each.name in _VOTES}
    scans = {each.statement for each in code.instructions if each.opcode.startswith("SHFL.UP")}
    taken = []
    for start, each in words.items():
        times = each.of_whole_warps if start in scans else each.of_warps
        ns = gpu.atomic_float_ns if _FLOAT.search(opcodes[start]) else gpu.atomic_ns
        taken.append(ns * _times(each, times if start in votes else each.times, scale))
    _, at = np.unique(np.concatenate([each.place for each in words.values()]), return_inverse=True)
    of_word = float(np.bincount(at, np.concatenate(taken)).max())
    of_piece = gpu.atomic_sector_ns * float(_times(pieces, pieces.times, scale).max())
    return max(of_word, of_piece, gpu.atomics_ns * work.update_requests * scale)


def _times(of: Updates, times: Array, scale: float) -> Array:
    """Return how often all thread blocks update each place: one that a single block updates is
    taken to be that block's own."""
    return np.where(of.last == -of.first, 1.0, scale) * times
