"""What empties the L2 before a timed call, by the names of --flush."""

import itertools
from collections.abc import Callable

import torch

from nvfp4.worker.timing import Flush, contest_flush, spin_cycles

_most_flush_buffers = 8


def clean_flush(device: torch.device) -> Callable[[], None]:
    """Writes four times the L2, then reads it: the timed call has nothing to write back.

    Takes turns with several buffers: where one lies in memory changes a short call by some tenths
    of a percent. All take a quarter of free memory at most.
    """
    l2_bytes = torch.cuda.get_device_properties(device).L2_cache_size
    most_bytes = torch.cuda.mem_get_info(device)[0] // 4
    nbytes = min(max(4 * l2_bytes, 256 << 20), most_bytes)
    count = min(_most_flush_buffers, most_bytes // nbytes)
    buffers = torch.zeros(count, nbytes // 8, dtype=torch.int64, device=device).unbind()
    turns = itertools.cycle(buffers)
    sink = torch.empty((), dtype=torch.int64, device=device)

    def flush() -> None:
        buffer = next(turns)
        buffer.zero_()
        torch.sum(buffer, dim=0, out=sink)
        torch.cuda._sleep(spin_cycles)

    return flush


flushes: dict[str, Flush] = {"contest": contest_flush, "clean": clean_flush}
