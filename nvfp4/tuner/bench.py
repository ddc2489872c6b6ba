"""Runs configurations of a submission on the GPU, with the judge's inputs, check and timer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from nvfp4.contract import reference
from nvfp4.tuner.errors import TuneError
from nvfp4.tuner.space import Shape, sentence
from nvfp4.worker import timing

_seed = 1111


def _memory_gbps(device: Any) -> float:
    """For each multiprocessor, by the clock (kHz) and the width of the bus, both edges counting; 0
    where torch does not tell.
    """
    if not hasattr(device, "memory_bus_width"):
        return 0.0
    bits_ms = 2 * device.memory_clock_rate * device.memory_bus_width
    return float(bits_ms / 8e6 / device.multi_processor_count)


class Gpu:
    """A CUDA device, and full-range inputs of one shape at a time.

    Raises TuneError if torch sees no CUDA device.
    """

    def __init__(self) -> None:
        if not torch.cuda.is_available():
            raise TuneError(
                "torch sees no CUDA device here, and only a GPU can say what is fast",
                "Tune on a machine with a GPU; nvfp4 info shows what is here.",
            )
        device = torch.device("cuda", 0)
        self.name = torch.cuda.get_device_name(device)
        major, minor = torch.cuda.get_device_capability(device)
        self.capability = 10 * major + minor
        self.memory_gbps = _memory_gbps(torch.cuda.get_device_properties(device))
        self._timer = timing.CudaTimer(device)
        self._data: Any = None
        self._expected: Any = None
        self._gemv: Callable[..., Any] = lambda *_: None

    def open(self, submission: Any, shape: Shape) -> None:
        """Makes the inputs of a shape and their exact product. Raises TuneError if they do not
        fit.
        """
        self._data = self._expected = None  # free the last shape's memory first
        try:
            self._data = reference.generate_full_range_input(*shape, _seed)
            self._expected = reference.ref_kernel(self._data)
        except torch.cuda.OutOfMemoryError:
            raise TuneError(
                f"the inputs of {shape} do not fit the GPU", "Tune another shape."
            ) from None
        self._gemv = submission.gemv

    def refusal(self, configuration: Any) -> str | None:
        """Why a configuration cannot be ranked: it fails, or its output is wrong. None if neither.

        Raises TuneError if it broke the CUDA context.
        """
        self._data[6].fill_(float("nan"))
        try:
            output = self._gemv(self._data, configuration)
            torch.cuda.synchronize()
        except Exception as error:
            why = sentence(error)
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
