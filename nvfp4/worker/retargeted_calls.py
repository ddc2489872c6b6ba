"""The worker's side of `--retarget`: a submission that does not fit this GPU is rewritten."""

import dataclasses
from collections.abc import Callable
from typing import Any

from nvfp4.records.messages import Call, Called, Load, Profile
from nvfp4.records.options import Options
from nvfp4.worker.fitting import Fitting
from nvfp4.worker.runner import Runner

most_kernels = 8
"""Of which the judge is told."""


class RetargetedCalls:
    """The operations that load and call a submission, on a GPU that it may not be written for."""

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
        return dataclasses.replace(answer, launches=self._rewritten())

    def _rewritten(self) -> list[dict[str, Any]]:
        """What was rewritten so far; equal entries once."""
        found = self._fitting.kernels() if self._fitting else []
        return [each for n, each in enumerate(found) if each not in found[:n]][:most_kernels]

    def _natively_first(self, request: Any, fd: int | None) -> object:
        """Carries out a request; where it fails because of the architecture, once more after the
        submission was loaded again with everything rewritten.
        """
        assert self._fitting, "Load comes first"

        def carry_out() -> object:
            return self._plainly[type(request)](request, fd)

        def again() -> object:
            if not isinstance(request, Load):
                self._plainly[Load](Load(), None)
            return carry_out()

        return self._fitting.natively_first(carry_out, again)
