"""Who keeps the device busy between calls, which slows those that are called next."""

import statistics

from nvfp4.local.timed_worker import FileFailed

longest_wait_s, busy_share = 2e-3, 0.05
"""Between two turns, beside what is usual; and after how many a file may be waited for."""


class Waits:
    """How long the judge waited for the device after a turn, by whose turn it was."""

    def __init__(self) -> None:
        self._of: dict[int, list[float]] = {}

    def add(self, file: int, wait_s: float) -> None:
        self._of.setdefault(file, []).append(wait_s)

    def refuse_busy(self, case: int) -> None:
        """Raises FileFailed for a file after whose turns the device is busy more often than after
        the others'.
        """
        everything = sorted(wait_s for waits in self._of.values() for wait_s in waits)
        usual_s = everything[len(everything) // 4]
        limit_s = longest_wait_s + 4 * usual_s
        shares = {
            file: statistics.fmean(wait_s > limit_s for wait_s in waits)
            for file, waits in self._of.items()
        }
        file = max(shares, key=lambda each: shares[each])
        others = [share for each, share in shares.items() if each != file]
        if others and shares[file] > busy_share + 3 * max(others):
            longest_ms = 1e3 * max(self._of[file])
            raise FileFailed(
                file,
                case,
                f"the device was busy after {shares[file]:.0%} of its calls, for up to "
                f"{longest_ms:.1f} ms: what runs between calls slows the others",
            )
