"""The time that a model predicts for a call on a GPU that is not here."""

from dataclasses import dataclass, field
from typing import Any

from nvfp4.records.channel import NotPlain, record

GPUS = ("B200", "H100", "H200")


@dataclass(frozen=True)
class Prediction:
    """The predicted time of a call."""

    gpu: str
    us: float | None
    low_us: float | None
    high_us: float | None
    """Upper end of the interval that holds the true time in four cases of five."""
    bound: str | None
    """The reason for most of the time, in words."""
    parts: dict[str, float] = field(default_factory=dict)
    """Microseconds by reason."""
    kernels: list[dict[str, Any]] = field(default_factory=list)
    """For each launch `kernel`, `us`, `registers`, `spilled_bytes`, `instructions` (of warps, in
    machine code), `ctas_a_sm` (resident at a time), `busiest` (CTAs of the busiest SM), `sms`."""
    missing: str | None = None
    """Why there is no time; then all else is None or empty."""

    @property
    def text(self) -> str:
        """The prediction as text for people."""
        if self.us is None or self.low_us is None or self.high_us is None:
            return f"no prediction: {self.missing}"
        bound = f", bound by {self.bound}" if self.bound else ""
        return f"{self.us:.1f} us ({self.low_us:.1f} to {self.high_us:.1f}){bound}"

    def word_against(self, other: "Prediction") -> str:
        """faster or slower than another call, or unclear, where the intervals overlap."""
        if not (self.low_us and self.high_us and other.low_us and other.high_us):
            return "unclear"
        if self.high_us < other.low_us:
            return "faster"
        return "slower" if self.low_us > other.high_us else "unclear"


def read_prediction(value: object) -> Prediction | None:
    """Return a prediction that was read from JSON; None if the value is not one."""
    try:
        found = record(Prediction, value)
    except NotPlain:
        return None
    times = (found.us, found.low_us, found.high_us)
    unknown = None in times
    if any(each is not None and each <= 0 for each in times) or unknown != bool(found.missing):
        return None
    return found if found.gpu in GPUS else None
