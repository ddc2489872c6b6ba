"""Every timed call of a benchmark, for the report."""

from nvfp4.judge.opened_case import OpenedCase

_room_bytes = 20 << 10
"""In the result pipe, which loses what does not fit: statistics matter more."""


class TimedCalls:
    """Adds the times of the case in progress to its report, while there is room."""

    def __init__(self) -> None:
        self._opened: OpenedCase | None = None
        self._left_bytes = _room_bytes

    def of(self, opened: OpenedCase) -> None:
        """The case that the next report is about."""
        self._opened = opened

    def add_to(self, report: dict[str, str]) -> None:
        """Adds nanoseconds as `samples`, in the order of the calls."""
        opened, self._opened = self._opened, None
        if opened is None or "mean" not in report:
            return
        text = ",".join(f"{each:.6g}" for each in opened.times_ns)
        self._left_bytes -= len(text)
        if self._left_bytes >= 0:
            report["samples"] = text
