"""Why a launch could not be captured: what CUDA would refuse, or what is not captured yet."""

from __future__ import annotations

from typing import ClassVar


class CaptureError(Exception):
    """Base of the errors of this package. `str(error)` is the sentence, then the hint.

    verdict_code: the kind of error, as a verdict calls it.
    """

    verdict_code: ClassVar[str] = "launch.not_captured"

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return self.message if self.hint is None else f"{self.message}\n  hint: {self.hint}"


class LaunchRefused(CaptureError):
    """A launch or an attribute that the CUDA runtime would refuse."""

    verdict_code = "launch.refused"


class UnsupportedCall(CaptureError):
    """A CUDA function or attribute that is not captured."""

    verdict_code = "launch.unsupported_call"


class NeedsGpu(UnsupportedCall, NotImplementedError):
    """What only a GPU can do; a RuntimeError, as torch raises."""


class InvalidTensorMap(CaptureError):
    """A tensor map (TMA descriptor) that the driver would refuse, or that is not supported."""

    verdict_code = "launch.tensor_map"
