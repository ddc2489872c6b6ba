"""Code for another GPU on this one, as the options ask for it, in a worker or in the run alone."""

import re
from collections.abc import Callable
from typing import Any, TypeVar

import torch

from nvfp4.capture.cuda.compilers import CompileError
from nvfp4.records.launch_errors import RetargetError
from nvfp4.records.options import Options
from nvfp4.retarget import extensions, target_of
from nvfp4.retarget.translator import Translator
from nvfp4.worker.outputs import Refused

T = TypeVar("T")


class Fitting:
    """Whoever loads a submission on a GPU makes one before."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._retargeting: Any = None
        self._extensions = extensions.Extensions()
        self._translator: Translator | None = None
        self._capability = torch.cuda.get_device_capability  # which may be told otherwise later
        extensions.start(options.retarget, options.arch, self._capability)

    def natively_first(self, carry_out: Callable[[], T], again: Callable[[], T]) -> T:
        """What ``carry_out`` returns. Where it fails because of the architecture, everything is
        rewritten from then on, and ``again`` is called.
        """
        try:
            return carry_out()
        except Refused:
            raise
        except Exception as error:
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
        return found + (self._translator.kernels() if self._translator else [])

    def _start(self) -> None:
        # It takes a second to import, which most submissions need not spend.
        from nvfp4.retargeting import install

        self._translator = Translator(str(target_of(self._capability())))
        self._retargeting = install(self._translator, self._options.arch)

    def _may_be_retargeted(self, error: BaseException) -> bool:
        if self._options.retarget != "auto" or self._retargeting is not None:
            return False
        try:
            torch.cuda.synchronize()
        except RuntimeError:  # the device is lost
            return False
        return names_an_architecture(error)


_of_an_architecture = re.compile(
    r"\bsm_\d+|\bcompute_\d+|\barch|ptxas|nvvm|kernel image|NO_BINARY|INVALID_PTX|UNSUPPORTED_PTX"
    r"|compute capability|tcgen05|tensor memory|blackwell|not supported on",
    re.IGNORECASE,
)


def names_an_architecture(error: BaseException | None) -> bool:
    """Whether an error, or one that led to it, says that code and GPU do not fit.

    A failed build of a CUDA C++ extension is none, for `retarget/nvcc.py` has tried all there is,
    nor is what was refused by name.
    """
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        if isinstance(error, RetargetError | CompileError):
            return False
        seen.add(id(error))
        text = f"{type(error).__name__}: {error}"
        if _of_an_architecture.search(text):
            return True
        error = error.__cause__ or error.__context__
    return False
