"""The worker's side of `--retarget`: a submission that does not fit this GPU is rewritten."""

import dataclasses
import re
from collections.abc import Callable
from typing import Any

import torch

from messages import Call, Called, Load, Profile
from runner import Refused, Runner

_of_an_architecture = re.compile(
    r"\bsm_\d+|\bcompute_\d+|\barch|ptxas|nvvm|kernel image|NO_BINARY|INVALID_PTX|UNSUPPORTED_PTX"
    r"|compute capability|tcgen05|tensor memory|blackwell|not supported on",
    re.IGNORECASE,
)


class RetargetedCalls:
    """The operations that load and call a submission, on a GPU that it may not be written for."""

    def __init__(self, runner: Runner) -> None:
        self._runner = runner
        self._request = Load("", False, 1)
        self._retargeting: Any = None
        self._plainly = {kind: runner.operations[kind] for kind in (Load, Call, Profile)}
        self.operations: dict[type, Callable[[Any, int | None], object]] = {}
        if runner.device.type == "cuda":
            self.operations = {Load: self._load, Call: self._call, Profile: self._natively_first}

    def _load(self, request: Load, fd: int | None) -> object:
        self._request = request
        if request.retarget == "always" and self._retargeting is None:
            self._start()
        return self._natively_first(request, fd)

    def _call(self, request: Call, fd: int | None) -> object:
        answer = self._natively_first(request, fd)
        if self._retargeting is None or not isinstance(answer, Called):
            return answer
        return dataclasses.replace(answer, launches=self._retargeting.kernels())

    def _natively_first(self, request: Any, fd: int | None) -> object:
        """Carries out a request; where it fails because of the architecture, once more after the
        submission was loaded again with everything rewritten.
        """
        carry_out = self._plainly[type(request)]
        try:
            return carry_out(request, fd)
        except Refused:
            raise
        except Exception as error:
            if not self._may_be_retargeted(error):
                raise
            try:
                self._start()
            except Exception as reason:  # then the submission's own error says more
                raise error from reason
        if not isinstance(request, Load):
            self._plainly[Load](self._request, None)
        return carry_out(request, fd)

    def _start(self) -> None:
        # It takes a second to import, which most submissions need not spend.
        from nvfp4.retargeting import install

        self._retargeting = install(self._request.arch)

    def _may_be_retargeted(self, error: BaseException) -> bool:
        if self._request.retarget != "auto" or self._retargeting is not None:
            return False
        try:
            torch.cuda.synchronize()
        except RuntimeError:  # the device is lost
            return False
        return names_an_architecture(error)


def names_an_architecture(error: BaseException | None) -> bool:
    """Whether an error, or one that led to it, says that code and GPU do not fit."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        if _of_an_architecture.search(f"{type(error).__name__}: {error}"):
            return True
        error = error.__cause__ or error.__context__
    return False
