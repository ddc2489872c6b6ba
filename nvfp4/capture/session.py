"""The receiver of a front end's launches, and notes on the next launch."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace

from nvfp4.capture.device import Device, device_for
from nvfp4.records.launch import Examine, Launch, ListedMemory, Memory, Note, anything_goes
from nvfp4.records.launch_errors import UnsupportedCall


class Session:
    """A session of a front end, which serves all its interceptions, one after the other.

    There is one, because compiled code lives as long as the process; `start` and `end` turn it on
    and off. memory: what launches may touch. examine: see `records.launch`. trial: whether launches
    are only trials of a configuration.
    """

    def __init__(self, front_end: str) -> None:
        """Create an idle session. front_end: its name in messages."""
        self._front_end = front_end
        self._device: Device | None = None
        self._run: Callable[[Launch], None] | None = None
        self._notes: list[Note] = []
        self.trial = False
        self.memory: Memory = ListedMemory()
        self.examine: Examine = anything_goes

    def start(
        self,
        run: Callable[[Launch], None],
        arch: str,
        memory: Memory | None,
        examine: Examine,
        install: Callable[[], Callable[[], None]],
    ) -> Callable[[], None]:
        """Send launches to `run`, and hook the front end with `install`, which returns the function
        that removes its hooks. Return a function that stops both. Raises RuntimeError if they are
        intercepted already, ValueError for an unknown architecture.
        """
        if self._run is not None:
            raise RuntimeError(f"launches of {self._front_end} are intercepted already")
        self._device, self._run = device_for(arch), run
        self.memory, self.examine = memory or ListedMemory(), examine
        self.forget()
        with ExitStack() as stack:
            stack.callback(self.end)
            stack.callback(install())
            return stack.pop_all().close

    def forget(self) -> None:
        """Discard the state of an earlier interception."""
        self._notes.clear()

    def end(self) -> None:
        """Refuse launches from now on."""
        self._device = self._run = None

    @property
    def device(self) -> Device:
        """The emulated device. Raises UnsupportedCall if there is none."""
        if self._device is None:
            raise UnsupportedCall("this was compiled for an emulation that has ended")
        return self._device

    def hand_over(self, launch: Launch) -> None:
        """Run a launch. Raises UnsupportedCall without an emulation, and the errors of `run`."""
        if self._run is None:
            raise UnsupportedCall("this was compiled for an emulation that has ended")
        if self.trial:
            launch = replace(launch, trial=True)
        elif self._notes:
            launch = replace(launch, notes=tuple(self._notes))
            self._notes.clear()
        self._run(launch)

    @contextmanager
    def trying(self) -> Iterator[None]:
        """Mark the launches of the with block as trials."""
        before, self.trial = self.trial, True
        try:
            yield
        finally:
            self.trial = before

    def note(self, note: Note) -> None:
        """Attach a note once, to the next launch that is not a trial."""
        if note not in self._notes:
            self._notes.append(note)
