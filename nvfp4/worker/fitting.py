"""`--retarget` in the process that loads a submission: kernels that do not fit this GPU are
rewritten."""

import dataclasses
import re
from collections.abc import Callable
from typing import Any, TypeVar

import torch

from nvfp4.capture.cuda.compilers import CompileError
from nvfp4.records.launch_errors import RetargetError
from nvfp4.records.messages import Call, Called, Load, Profile
from nvfp4.records.options import Options
from nvfp4.retarget import extensions
from nvfp4.retarget.targets import target_of
from nvfp4.worker.outputs import Refused
from nvfp4.worker.runner import Runner

T = TypeVar("T")


class Fitting:
    """Retargeting of a submission; create one before the submission is loaded on a GPU."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._translator: Any = None
        self._capability = torch.cuda.get_device_capability  # which may be replaced later
        extensions.start(options.retarget, options.arch, self._capability)

    def natively_first(self, carry_out: Callable[[], T], again: Callable[[], T]) -> T:
        """Return the result of ``carry_out``.

        If it fails because of the architecture, start to rewrite all code and return the result of
        ``again``.
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
        """Return an entry for each kernel rewritten so far."""
        translated = self._translator.kernels if self._translator else []
        return [*extensions.rewritten_kernels, *translated]

    def _start(self) -> None:
        # The import takes a second, and most submissions do not need it.
        from nvfp4.retargeting import Translator, install

        translator = Translator(str(target_of(self._capability())))
        install(translator, self._options.arch)
        self._translator = translator

    def _may_be_retargeted(self, error: BaseException) -> bool:
        if self._options.retarget != "auto" or self._translator:
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
    """Return whether an error, or one that led to it, says that code and GPU do not fit.

    A failed build of a CUDA C++ extension does not, as `retarget/nvcc.py` has tried everything;
    nor does an instruction that was refused by name.
    """
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        if isinstance(error, RetargetError | CompileError):
            return False
        seen.add(id(error))
        if _of_an_architecture.search(f"{type(error).__name__}: {error}"):
            return True
        error = error.__cause__ or error.__context__
    return False


most_kernels = 8
"""Most rewritten kernels that are reported to the judge."""


class RetargetedCalls:
    """The operations that load and call a submission on a GPU it may not be written for."""

    def __init__(self, runner: Runner, options: Options) -> None:
        self._options = options
        self._fitting: Fitting | None = None
        self._plainly = {kind: runner.operations[kind] for kind in (Load, Call, Profile)}
        self.operations: dict[type, Callable[[Any, int | None], object]] = {
            Load: self._load,
            Call: self._call,
            Profile: self._natively_first,
        }

    def _load(self, request: Load, fd: int | None) -> object:
        if self._fitting is None:
            self._fitting = Fitting(self._options)
        return self._natively_first(request, fd)

    def _call(self, request: Call, fd: int | None) -> object:
        answer = self._natively_first(request, fd)
        if not isinstance(answer, Called):
            return answer
        assert self._fitting, "Load comes first"
        return dataclasses.replace(answer, launches=self._fitting.kernels()[:most_kernels])

    def _natively_first(self, request: Any, fd: int | None) -> object:
        """Carry out a request. If it fails because of the architecture, load the submission again
        with all code rewritten and repeat the request.
        """
        assert self._fitting, "Load comes first"

        def carry_out() -> object:
            return self._plainly[type(request)](request, fd)

        def again() -> object:
            if not isinstance(request, Load):
                self._plainly[Load](Load(), None)
            return carry_out()

        return self._fitting.natively_first(carry_out, again)
