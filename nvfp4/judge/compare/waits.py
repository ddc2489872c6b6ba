"""Who keeps the device busy between calls, which slows those that are called next."""

from nvfp4.judge.compare.timed_worker import FileFailed

longest_wait_s = 2e-3
"""Between two turns, beside what is usual."""

most_waits, busy_share = 5, 0.05
"""So often a file may be waited for longer: the host has its hiccups."""


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
        limit_s = longest_wait_s + 4 * everything[len(everything) // 4]
        long = {file: sum(each > limit_s for each in waits) for file, waits in self._of.items()}
        shares = {file: long[file] / len(waits) for file, waits in self._of.items()}
        file = max(shares, key=lambda each: shares[each])
        others = [share for each, share in shares.items() if each != file]
        if long[file] > most_waits and others and shares[file] > busy_share + 3 * min(others):
            longest_ms = 1e3 * max(self._of[file])
            raise FileFailed(
                file,
                case,
                f"the device was busy after {shares[file]:.0%} of its calls, for up to "
                f"{longest_ms:.1f} ms: what runs between calls slows the others",
            )
