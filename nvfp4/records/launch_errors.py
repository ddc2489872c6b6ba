"""Why a launch could not be captured: what CUDA would refuse, or what is not captured yet."""

from collections.abc import Callable
from typing import Any, ClassVar


class CodedError(Exception):
    """Base of errors that have a code. `str(error)` is the sentence, then the hint."""

    verdict_code: ClassVar[str]
    """The kind of error, as a verdict calls it."""
    refusal: ClassVar[bool] = False
    """Whether something is not supported here, which says nothing about the submission; see
    docs/emulator.md."""

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return self.message if self.hint is None else f"{self.message}\n  hint: {self.hint}"


class MachineLimit(CodedError):
    """The emulated GPU needs more memory than this machine has left."""

    verdict_code = "machine.limit"
    refusal = True


class CaptureError(CodedError):
    """Base of errors in capturing launches."""

    verdict_code = "launch.not_captured"


class LaunchRefused(CaptureError):
    """A launch or an attribute that the CUDA runtime would refuse."""

    verdict_code = "launch.refused"


class UnsupportedCall(CaptureError):
    """A CUDA function or attribute that is not captured."""

    verdict_code = "launch.unsupported_call"
    refusal = True

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        refused(message)


class NotInstalled(UnsupportedCall):
    """This machine lacks something that the contest's machines have: a library's header, a newer
    compiler."""

    verdict_code = "import.not_installed"


class NeedsGpu(UnsupportedCall, NotImplementedError):
    """An operation that only a GPU can do; a RuntimeError, as torch raises."""


class UnsupportedTensorMap(UnsupportedCall):
    """A tensor map (TMA descriptor) that the driver takes and the emulator does not."""


class InvalidTensorMap(CaptureError):
    """A tensor map (TMA descriptor) that the driver would refuse."""

    verdict_code = "launch.tensor_map"


class RetargetError(CodedError):
    """Base of the errors of `retarget`, which say nothing about the submission, only about this
    machine's GPU."""

    verdict_code = "retarget.failed"
    refusal = True


class KernelFault(Exception):
    """A fault of an emulated kernel, raised where it was launched. failure: see
    ``records.failures``."""

    refusal: ClassVar[bool] = False

    def __init__(self, text: str, failure: dict[str, Any]) -> None:
        super().__init__(text)
        self.failure = failure
        self.verdict_code = failure.get("code")


class KernelNotEmulated(KernelFault):
    """A fault of an emulated kernel that says nothing about the submission."""

    refusal = True


_listener: Callable[[str], None] | None = None


def tell_refusals(listener: Callable[[str], None] | None) -> None:
    """Call `listener` with a sentence when something is refused that a GPU supports, as compiled
    code may end the process instead of passing on the error. None removes the listener."""
    global _listener
    _listener = listener


def refused(message: str) -> None:
    """Pass a message to the listener, if there is one."""
    if _listener is not None:
        _listener(message)
