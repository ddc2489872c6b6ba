"""What a timed call pays for the flush before it: the contest's leaves lines to be written back."""

import statistics

import torch

from nvfp4.worker.flushes import flushes
from nvfp4.worker.timing import CudaTimer

_warm_up_calls, _calls = 3, 30


class WriteBack:
    """Measures it by a plain read, after the contest's flush and after a clean one."""

    def __init__(self, device: torch.device) -> None:
        self._device = device

    def added_ns(self, nbytes: int) -> float:
        """How much longer a read of so many bytes takes after the contest's flush; 0 at least."""
        words = torch.empty(nbytes // 8, dtype=torch.int64, device=self._device).random_()
        timers = {name: CudaTimer(self._device, flush) for name, flush in flushes.items()}
        times: dict[str, list[float]] = {flush: [] for flush in timers}
        for _ in range(_warm_up_calls + _calls):
            for flush, timer in timers.items():
                times[flush].append(timer.time(words.sum)[1].call_ns)
        medians = {flush: statistics.median(each[_warm_up_calls:]) for flush, each in times.items()}
        del words, timers
        torch.cuda.empty_cache()  # the submission's process needs memory too
        return max(0.0, medians["contest"] - medians["clean"])


def nothing_added(nbytes: int) -> float:
    """Nanoseconds of a clean flush."""
    return 0.0
