"""Who gets the launches, and what is known about the one that comes next."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from nvfp4.capture.device import Device
from nvfp4.records.launch import Launch, ListedMemory, Memory, Note
from nvfp4.records.launch_errors import UnsupportedCall


class Session:
    """Compiled kernels live as long as the process, so one session serves all its emulations, one
    after the other: `begin` and `end` say which is on.

    notes: what a report of the launches under way should mention. trial: whether they only try
    out a configuration.
    """

    def __init__(self) -> None:
        self._device: Device | None = None
        self._run: Callable[[Launch], None] | None = None
        self.memory: Memory = ListedMemory()
        self.notes: tuple[Note, ...] = ()
        self.trial = False

    def begin(self, device: Device, run: Callable[[Launch], None], memory: Memory) -> None:
        """Send launches on `memory` to `run` until `end`. Raises RuntimeError if one is on."""
        if self._run is not None:
            raise RuntimeError("Triton's launches are intercepted already")
        self._device, self._run, self.memory = device, run, memory
        self.notes, self.trial = (), False

    def end(self) -> None:
        """Refuse launches from now on."""
        self._device = self._run = None

    @property
    def device(self) -> Device:
        """The pretended device. Raises UnsupportedCall when no emulation is on."""
        if self._device is None:
            raise UnsupportedCall("this kernel was compiled for an emulation that has ended")
        return self._device

    def launch(self, launch: Launch) -> None:
        """Hand over a launch. Raises UnsupportedCall where no emulation is on, and its errors."""
        if self._run is None:
            raise UnsupportedCall("this kernel was compiled for an emulation that has ended")
        self._run(launch)

    @contextmanager
    def launching(self, notes: tuple[Note, ...] = (), trial: bool = False) -> Iterator[None]:
        """Launches of the with block have these notes as well, or are trials."""
        before = self.notes, self.trial
        self.notes, self.trial = self.notes + notes, self.trial or trial
        try:
            yield
        finally:
            self.notes, self.trial = before


SESSION = Session()
