"""Code for another GPU on this one, as a Load asks for it: in the worker and in the run alone."""

from collections.abc import Callable
from typing import Any, TypeVar

import torch

from messages import Load
from nvfp4 import extensions
from nvfp4.local.architecture_errors import names_an_architecture, shorten_build_errors
from runner import Refused

T = TypeVar("T")


class Fitting:
    """Whoever loads a submission on a GPU makes one before."""

    def __init__(self, load: Load) -> None:
        self._load = load
        self._retargeting: Any = None
        self._extensions = extensions.Extensions()
        extensions.start(load.retarget, load.arch, torch.cuda.get_device_capability)
        if load.retarget == "always":
            self._start()

    def natively_first(self, carry_out: Callable[[], T], again: Callable[[], T]) -> T:
        """What ``carry_out`` returns. Where it fails because of the architecture, everything is
        rewritten from then on, and ``again`` is called.
        """
        try:
            return carry_out()
        except Refused:
            raise
        except Exception as error:
            shorten_build_errors(error)
            if not self._may_be_retargeted(error):
                raise
            try:
                self._start()
            except Exception as reason:  # then the submission's own error says more
                raise error from reason
        return again()

    def kernels(self) -> list[dict[str, Any]]:
        """What was rewritten so far."""
        found = self._extensions.kernels()
        return found + (self._retargeting.kernels() if self._retargeting else [])

    def _start(self) -> None:
        # It takes a second to import, which most submissions need not spend.
        from nvfp4.retargeting import install

        self._retargeting = install(self._load.arch)

    def _may_be_retargeted(self, error: BaseException) -> bool:
        if self._load.retarget != "auto" or self._retargeting is not None:
            return False
        try:
            torch.cuda.synchronize()
        except RuntimeError:  # the device is lost
            return False
        return names_an_architecture(error)
