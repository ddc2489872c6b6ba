"""Who gets the launches, and what is known about the one that comes next."""

from __future__ import annotations

import struct
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


_SECTION_HEADER = "<IIQQQQIIQQ"
_WITH_VALUE = 4  # format of an entry: a size in bytes, then the value
_REGISTERS, _STACK = 0x2F, 0x12


def of_kernel(cubin: bytes) -> tuple[int, int]:
    """(registers a thread, words a thread has on its stack), 0 where the file does not say.

    Source: the section .nv.info of the ELF file, entries REGCOUNT and MIN_STACK_SIZE, as
    `nvdisasm` and `cuobjdump -elf` name them.
    """
    found = {_REGISTERS: 0, _STACK: 0}
    if cubin[:5] != b"\x7fELF\x02":
        return 0, 0
    (start,) = struct.unpack_from("<Q", cubin, 0x28)
    size, count, names = struct.unpack_from("<HHH", cubin, 0x3A)
    sections = [struct.unpack_from(_SECTION_HEADER, cubin, start + size * i) for i in range(count)]
    text = sections[names][4]
    for name, _, _, _, offset, nbytes, *_ in sections:
        at = text + name
        if cubin[at : cubin.index(b"\0", at)] == b".nv.info":
            _read(cubin[offset : offset + nbytes], found)
    return found[_REGISTERS], found[_STACK] // 4


def _read(entries: bytes, found: dict[int, int]) -> None:
    at = 0
    while at + 4 <= len(entries):
        kind, attribute, nbytes = struct.unpack_from("<BBH", entries, at)
        at += 4
        if kind != _WITH_VALUE:
            continue
        if attribute in found and nbytes >= 8:
            found[attribute] = max(found[attribute], struct.unpack_from("<I", entries, at + 4)[0])
        at += nbytes
