"""The worker's side of `--retarget`: a submission that does not fit this GPU is rewritten."""

import dataclasses
from pathlib import Path
from typing import Any

import torch

from nvfp4.records.messages import Call, Called, Load, Profile
from nvfp4.records.options import Options
from nvfp4.retarget import extensions
from nvfp4.worker.architecture_errors import names_an_architecture, shorten_build_errors
from nvfp4.worker.runner import Refused, Runner

most_kernels = 8
"""Of which the judge is told."""


class GpuRunner(Runner):
    """Rewrites a submission that does not fit this GPU."""

    def __init__(self, submission: Path, options: Options) -> None:
        super().__init__(submission, options)
        self._retargeting: Any = None
        self._extensions = extensions.Extensions()
        self._plainly = {kind: self.operations[kind] for kind in (Load, Call, Profile)}
        self.operations |= {
            Load: self._load_fitting,
            Call: self._call_fitting,
            Profile: self._natively_first,
        }

    def _load_fitting(self, request: Load, fd: int | None) -> object:
        options = self.options
        if options.retarget != "never":
            extensions.start(options.retarget, options.arch, torch.cuda.get_device_capability())
        if options.retarget == "always" and self._retargeting is None:
            self._start()
        return self._natively_first(request, fd)

    def _call_fitting(self, request: Call, fd: int | None) -> object:
        answer = self._natively_first(request, fd)
        if not isinstance(answer, Called):
            return answer
        return dataclasses.replace(answer, launches=self._rewritten())

    def _rewritten(self) -> list[dict[str, Any]]:
        """What was rewritten so far; equal entries once."""
        found = self._extensions.kernels()
        found += self._retargeting.kernels() if self._retargeting else []
        return [each for n, each in enumerate(found) if each not in found[:n]][:most_kernels]

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
            shorten_build_errors(error)
            if not self._may_be_retargeted(error):
                raise
            try:
                self._start()
            except Exception as reason:  # then the submission's own error says more
                raise error from reason
        if not isinstance(request, Load):
            self._plainly[Load](Load(), None)
        return carry_out(request, fd)

    def _start(self) -> None:
        # It takes a second to import, which most submissions need not spend.
        from nvfp4.retargeting import install

        self._retargeting = install(self.options.arch)

    def _may_be_retargeted(self, error: BaseException) -> bool:
        if self.options.retarget != "auto" or self._retargeting is not None:
            return False
        try:
            torch.cuda.synchronize()
        except RuntimeError:  # the device is lost
            return False
        return names_an_architecture(error)
