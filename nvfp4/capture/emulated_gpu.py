"""The GPU that launches go to: the executor, another process, which has all device memory.

This process has the addresses. Contents come when host code reads them, and what host code sets
goes with the next launch. Memory of a case begins without access rights: code that reads it through
its address crashes, as with a GPU.
"""

import ctypes
import gc
import itertools
import mmap
import socket
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from traceback import walk_stack
from typing import Any, Protocol

import numpy as np
import torch

from nvfp4.capture.host_access import Owner
from nvfp4.capture.torch_memory import remember
from nvfp4.records import gpu_messages, launch_errors
from nvfp4.records.channel import Channel, ChannelClosed
from nvfp4.records.files import sealed_file
from nvfp4.records.gpu_messages import Fault, window_bytes
from nvfp4.records.launch import Buffer, Dim3, Launch, Memory, Note
from nvfp4.records.messages import pack, unpack
from nvfp4.records.ranges import Ranges

_most_spans = 8192
"""The most spans in one message."""

_page_bytes = mmap.PAGESIZE
_no_access, _read_write = 0, 3

Bytes = np.ndarray[Any, np.dtype[np.uint8]]


class Link(Protocol):
    """Destination of requests."""

    window: Bytes
    """Memory that this process shares with the executor; see ``records.gpu_messages``."""

    def ask(self, request: object, fd: int | None = None) -> Any:
        """Return the answer to a request. Raises KernelFault."""


@contextmanager
def _limit_if_it_ended() -> Iterator[None]:
    try:
        yield
    except ChannelClosed:
        message = "the emulated GPU has ended, as it does where memory is short"
        raise launch_errors.MachineLimit(message) from None


class ExecutorLink:
    """The executor behind a socket."""

    def __init__(self, connection: socket.socket) -> None:
        """Raises MachineLimit if the executor has ended."""
        self._channel = Channel(connection, takes_fds=True)
        with _limit_if_it_ended():
            message, fd = self._channel.receive()
        unpack(message, gpu_messages.Window)
        assert fd is not None
        self.window = np.frombuffer(mmap.mmap(fd, window_bytes), np.uint8)

    def ask(self, request: object, fd: int | None = None) -> Any:
        """Send a request to the executor and return the answer. Raises KernelFault, and
        MachineLimit if the executor has ended."""
        with _limit_if_it_ended():
            self._channel.send(pack(request), fd)
            answer = unpack(self._channel.receive()[0], *gpu_messages.ANSWERS)
        if isinstance(answer, Fault):
            sys.stdout.write(answer.output)
            raise fault_error(answer)
        return answer


def fault_error(fault: Fault) -> launch_errors.KernelFault:
    """Return the exception for a fault."""
    kind = launch_errors.KernelNotEmulated if fault.refusal else launch_errors.KernelFault
    return kind(fault.text, fault.failure)


class AddressSpace:
    """Pages without access rights until they are opened."""

    def __init__(self, nbytes: int) -> None:
        self.mapping = mmap.mmap(-1, nbytes, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        self.address = ctypes.addressof(ctypes.c_uint8.from_buffer(self.mapping))
        self.end = self.address + nbytes
        self.close()

    def open(self, start: int, end: int) -> None:
        """Give access to the pages of a range."""
        start = start // _page_bytes * _page_bytes
        _protect(start, min(end, self.end) - start, _read_write)

    def close(self) -> None:
        """Discard the contents and remove access to all pages."""
        self.mapping.madvise(mmap.MADV_DONTNEED)
        _protect(self.address, self.end - self.address, _no_access)


def _protect(start: int, nbytes: int, access: int) -> None:
    library = ctypes.CDLL(None, use_errno=True)
    if library.mprotect(ctypes.c_void_p(start), ctypes.c_size_t(nbytes), access):
        raise OSError(ctypes.get_errno(), "mprotect")


class EmulatedGpu(Owner):
    """The emulated GPU, as seen by the process of the submission.

    spaces: the address spaces of the cases so far, the current one last.
    """

    elsewhere = True

    def __init__(self, link: Link, memory: Memory, path: str) -> None:
        """Connect to the executor. memory: all memory that launches may touch. path: the
        submission's file."""
        self._link = link
        self._memory = memory
        self._path = path
        self._turn = threading.RLock()
        self._texts: dict[str, int] = {}
        self._listed: list[Any] = [[], []]
        self._known: set[tuple[int, int]] = set()
        self._shared: list[tuple[int, int, mmap.mmap]] = []
        self._variables: list[Buffer] = []
        self._set, self._fresh = Ranges(), Ranges()
        self._collections = -1
        self.spaces: list[AddressSpace] = []

    def begin_call(self) -> None:
        """Forget what was fetched: the judge has put new contents into the memory of the cases."""
        for each in self.spaces:
            each.close()
            self._set.remove(each.address, each.end)
        self._fresh.clear()
        self._collections = -1

    def launch(self, launch: Launch) -> None:
        """Run a kernel. Raises KernelFault."""
        with self._turn:
            text = self._text(launch.ptx)
            other = self._text(launch.with_suffix) if launch.with_suffix else None
            self._send_what_was_set(self._look_for_regions())
            self._fresh.clear()
            start = gpu_messages.Start(
                text, launch.kernel, _three(launch.grid), _three(launch.block),
                _three(launch.cluster), int(launch.shared_bytes), int(launch.stream),
                bool(launch.programmatic), launch.waited, bool(launch.alongside),
                bool(launch.trial), [bytes(each).hex() for each in launch.parameters],
                [_listed(each) for each in launch.notes], self._place(), other
            )  # fmt: skip
            started = self._link.ask(start)
        assert isinstance(started, gpu_messages.Started)
        sys.stdout.write(started.output)

    def add_note(self, kernel: str, note: Note) -> None:
        """Add a note to the last launch of a kernel."""
        self._ask(gpu_messages.AddNote(kernel, _listed(note)))

    def variable(self, ptx: str, name: str) -> Buffer:
        """Return a variable of a module. It has no memory in this process."""
        found = self._ask(gpu_messages.FindVariable(self._text(ptx), name))
        assert isinstance(found, gpu_messages.Found)
        buffer = Buffer(name, found.address, found.nbytes)
        if buffer not in self._variables:
            self._variables.append(buffer)
        return buffer

    def examine(self, ptx: str, kernel: str) -> None:
        """Raise KernelFault if a kernel cannot be emulated."""
        self._ask(gpu_messages.Examine(self._text(ptx), kernel))

    def hand_over(self, tensor: torch.Tensor, at: int, waited: int, operators: int | None) -> None:
        """Make a tensor a part of the output, at an offset in its memory. waited, operators: see
        `gpu_messages.HandOver`. Raises KernelFault."""
        if not tensor.numel():
            return  # it has no memory
        address, width = tensor.data_ptr(), tensor.element_size()
        remember(tensor)
        with self._turn:
            # Memory that no launch uses need not go there, and freed memory must not be read.
            alive = [
                each
                for each in self._outside_cases(self._memory.known())
                if (each.address, each.nbytes) in self._known or each.address <= address < each.end
            ]
            self._send_what_was_set(alive)
            shape, strides = list(tensor.shape), [each * width for each in tensor.stride()]
            form = width, shape, strides, waited, operators
            self._link.ask(gpu_messages.HandOver(address, at, *form, self._place()))

    # Accesses of host code

    def reads(self, address: int, nbytes: int) -> None:
        """Fetch the contents of a range. Raises KernelFault."""
        with self._turn:
            for start, end in self._held():
                start, end = max(start, address), min(end, address + nbytes)
                for gap in self._fresh.outside(start, end) if start < end else ():
                    self._fetch(*gap)

    def wrote(self, address: int, nbytes: int) -> None:
        """Record a write: these bytes are sent to the executor before the next launch."""
        self._set.add(address, address + nbytes)
        self._fresh.add(address, address + nbytes)

    def opens(self, address: int, nbytes: int) -> None:
        """Make the pages of a range accessible."""
        for each in self.spaces:
            if each.address <= address < each.end:
                each.open(address, address + nbytes)

    def put(self, address: int, data: bytes) -> None:
        """Write bytes in this process, or in the executor if only the executor has them."""
        if not self._is_remote(address):
            self.opens(address, len(data))
            ctypes.memmove(address, data, len(data))
            self.wrote(address, len(data))
            return
        with self._turn:
            for start in range(0, len(data), window_bytes):
                part = data[start : start + window_bytes]
                self._link.window[: len(part)] = np.frombuffer(part, np.uint8)
                self._link.ask(gpu_messages.Write([(address + start, len(part))]))

    def get(self, address: int, nbytes: int) -> bytes:
        """Return the bytes of a range."""
        if not self._is_remote(address):
            self.opens(address, nbytes)
            self.reads(address, nbytes)
            return ctypes.string_at(address, nbytes)
        data = bytearray()
        with self._turn:
            for start in range(address, address + nbytes, window_bytes):
                part = min(window_bytes, address + nbytes - start)
                self._link.ask(gpu_messages.Read(start, part, self._place()))
                data += self._link.window[:part].tobytes()
        return bytes(data)

    def copy(self, to: int, source: int, nbytes: int) -> None:
        """Copy within device memory."""
        with self._turn:
            self._send_what_was_set(self._look_for_regions())
            self._link.ask(gpu_messages.Copy(to, source, nbytes))
            self._fresh.remove(to, to + nbytes)

    def share(self, nbytes: int) -> int:
        """Return the address of memory that this process shares with the executor until it ends."""
        size = -(-nbytes // _page_bytes) * _page_bytes
        with sealed_file(size) as file:
            mapping = mmap.mmap(file.fileno(), size)
            address = ctypes.addressof(ctypes.c_uint8.from_buffer(mapping))
            self._ask(gpu_messages.Share(address, size), file.fileno())
        self._shared.append((address, size, mapping))
        return address

    def _is_remote(self, address: int) -> bool:
        return any(each.address <= address < each.end for each in self._variables)

    def _held(self) -> list[tuple[int, int]]:
        """Return the ranges of the current case, and of memory that launches may touch: the
        executor may hold their contents."""
        held = [(each.address, each.end) for each in self.spaces[-1:]]
        return held + [(address, address + nbytes) for address, nbytes in self._known]

    def _fetch(self, start: int, end: int) -> None:
        place = self._place()
        self.opens(start, end - start)
        for at in range(start, end, window_bytes):
            nbytes = min(window_bytes, end - at)
            self._link.ask(gpu_messages.Read(at, nbytes, place))
            _bytes_at(at, nbytes)[:] = self._link.window[:nbytes]
        self._fresh.add(start, end)

    # Requests to the executor

    def _ask(self, request: object, fd: int | None = None) -> Any:
        with self._turn:
            return self._link.ask(request, fd)

    def _text(self, ptx: str) -> int:
        """Return the number of a PTX text; send the text the first time."""
        with self._turn:
            if ptx not in self._texts:
                data = np.frombuffer(ptx.encode(), np.uint8)
                if data.size > window_bytes:
                    message = f"a module has more than {window_bytes >> 20} MiB of PTX"
                    raise launch_errors.UnsupportedCall(message)
                self._link.window[: data.size] = data
                self._link.ask(gpu_messages.AddText(data.size))
                self._texts[ptx] = len(self._texts)
            return self._texts[ptx]

    def _send_what_was_set(self, regions: list[Buffer]) -> None:
        listed = [[_described(each) for each in of] for of in (regions, self._memory.freed())]
        if listed != self._listed:
            self._link.ask(gpu_messages.SetRegions(*listed))
            self._listed = listed
        known, self._known = self._known, set()
        for each in regions:
            if any(start <= each.address < start + size for start, size, _ in self._shared):
                continue
            self._known.add((each.address, each.nbytes))
            if (each.address, each.nbytes) not in known:
                self._set.add(each.address, each.end)
                self._fresh.add(each.address, each.end)
        ranges = self._held()
        self._send([span for one in ranges for span in self._set.within(*one)])
        for one in ranges:
            self._set.remove(*one)

    def _send(self, ranges: list[tuple[int, int]]) -> None:
        spans: list[tuple[int, int]] = []
        used = 0
        for start, end in ranges:
            while start < end:
                nbytes = min(end - start, window_bytes - used)
                self._link.window[used : used + nbytes] = _bytes_at(start, nbytes)
                spans.append((start, nbytes))
                start, used = start + nbytes, used + nbytes
                if used == window_bytes or len(spans) == _most_spans:
                    self._link.ask(gpu_messages.Write(spans))
                    spans, used = [], 0
        if spans:
            self._link.ask(gpu_messages.Write(spans))

    def _look_for_regions(self) -> list[Buffer]:
        """Look for this process's own memory that a launch may touch."""
        # Young objects are looked at each time, old ones once in a call and after collections.
        before, self._collections = self._collections, sum(e["collections"] for e in gc.get_stats())
        generations = 1 if self._collections == before else None
        found = self._memory.known()
        for each in itertools.islice(self._memory.search(), generations):
            found = each
        return self._outside_cases(found)

    def _outside_cases(self, found: list[Buffer]) -> list[Buffer]:
        spaces = [Buffer("", each.address, each.end - each.address) for each in self.spaces]
        return [each for each in found if each.nbytes and not any(map(each.meets, spaces))]

    def _place(self) -> list[int]:
        """Return the line and column of the submission's innermost frame."""
        for frame, line in walk_stack(sys._getframe(1)):
            code = frame.f_code
            if code.co_filename == self._path:
                column = None
                if sys.version_info >= (3, 11):
                    positions = itertools.islice(code.co_positions(), frame.f_lasti // 2, None)
                    _, _, column, _ = next(positions)
                return [line or 0, 0 if column is None else column + 1]
        return []


def _three(extents: Dim3) -> Dim3:
    x, y, z = map(int, extents)
    return x, y, z


def _listed(note: Note) -> gpu_messages.Told:
    return note.code, note.message, note.hint, note.file, note.line


def _described(region: Buffer) -> gpu_messages.Region:
    view = region.view
    seen = None if view is None else (list(view.shape), list(view.strides), view.offset, view.dtype)
    return region.name, region.address, region.nbytes, region.writable, seen


def _bytes_at(address: int, nbytes: int) -> Bytes:
    pointer = ctypes.cast(address, ctypes.POINTER(ctypes.c_uint8))
    return np.ctypeslib.as_array(pointer, (nbytes,))
