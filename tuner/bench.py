"""Tries configurations of a submission on the present GPU: the judge's inputs, checks and timer."""

from __future__ import annotations

import importlib.util
import pathlib
import sys
from collections.abc import Callable
from typing import Any

import torch

import reference
import timing
from nvfp4.tuner.errors import Shape, TuneError

_seed = 1111


class Gpu:
    """A CUDA device and the inputs of the shape at hand, contents full-range."""

    def __init__(self) -> None:
        self._device = torch.device("cuda", 0)
        self.name = torch.cuda.get_device_name(self._device)
        major, minor = torch.cuda.get_device_capability(self._device)
        self.capability = 10 * major + minor
        self._timer = timing.CudaTimer(self._device)
        self._data: Any = None
        self._expected: Any = None
        self._gemv: Callable[..., Any] = lambda *_: None

    def load(self, submission: pathlib.Path) -> Any:
        """The submission as a module. Raises TuneError where it does not import."""
        spec = importlib.util.spec_from_file_location("submission", submission)
        if spec is None or spec.loader is None:
            raise TuneError(f"{submission} is not a Python file", "Name the submission to tune.")
        module = importlib.util.module_from_spec(spec)
        sys.modules["submission"] = module
        try:
            spec.loader.exec_module(module)
        except (Exception, SystemExit) as error:
            raise TuneError(
                f"{submission} does not run by itself: {_sentence(error)}",
                f"python {submission} shows where.",
            ) from error
        return module

    def open(self, submission: Any, shape: Shape) -> None:
        """Makes the inputs of a shape and their exact product."""
        try:
            self._data = self._expected = None
            self._data = reference.generate_full_range_input(*shape, _seed)
            self._expected = reference.ref_kernel(self._data)
        except torch.cuda.OutOfMemoryError:
            raise TuneError(
                f"the inputs of {shape} do not fit the GPU", "Tune another shape."
            ) from None
        self._gemv = submission.gemv

    def refusal(self, configuration: Any) -> str | None:
        """Why a configuration cannot be ranked: it fails, or its product is wrong.

        Raises TuneError where it took the CUDA context along.
        """
        self._data[6].fill_(float("nan"))
        try:
            output = self._gemv(self._data, configuration)
            torch.cuda.synchronize()
        except Exception as error:
            why = _sentence(error)
        else:
            right, message = reference.check_implementation(self._data, output, self._expected)
            return None if right else message.splitlines()[0]
        try:
            torch.cuda.synchronize()
        except RuntimeError:
            raise TuneError(
                f"{configuration} broke the CUDA context: {why}",
                "Take it out of the space, then tune again with the same --state.",
            ) from None
        return why

    def time_us(self, configuration: Any) -> float:
        """One call on a cold L2 cache."""
        _, spent = self._timer.time(lambda: self._gemv(self._data, configuration))
        return spent.call_ns / 1e3


def _sentence(error: BaseException) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())[:200]


def present_gpu() -> Gpu:
    """The GPU that torch sees first. Raises TuneError without one."""
    if not torch.cuda.is_available():
        raise TuneError(
            "torch sees no CUDA device here, and only a GPU can say what is fast",
            "Tune on a machine with a GPU; nvfp4 info shows what is here.",
        )
    return Gpu()
