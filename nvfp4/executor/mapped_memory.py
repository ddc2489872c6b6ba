"""Memory at addresses that another process has chosen."""

import ctypes
import fcntl
import mmap
import os
from collections.abc import Iterable

from nvfp4.records.ranges import Ranges

_page_bytes = mmap.PAGESIZE
_size_stays = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW

_MOST_SHARED_BYTES = 4 << 30
"""Limit on files of another process; once that process closes them, only this one is charged for
them."""

_read_write, _shared, _private, _anonymous, _keep_others = 3, 0x01, 0x02, 0x20, 0x100000
_failed = ctypes.c_void_p(-1).value
_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_int64]
_libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]


class NotMappable(Exception):
    """This process uses part of the address range."""


class NotShareable(Exception):
    """The file of another process has an unexpected or unsealed size, or exceeds the limit."""


class MappedMemory:
    """Zeroed pages, which keep their contents for as long as they are requested, and one mapped
    file. Other mappings of this process are never replaced."""

    def __init__(self) -> None:
        self._pages = Ranges()
        self._file: tuple[int, int] = (0, 0)
        self._shared: list[tuple[int, int]] = []

    def map_file(self, fd: int, nbytes: int, address: int) -> None:
        """Map the file at a page boundary, replacing the zeroed pages there, which the other
        process has already unmapped. Raises NotMappable."""
        self.drop_file()
        for start, end in self._pages.within(address, address + nbytes):
            self._give_back(start, end)
        _map(address, nbytes, _shared | _keep_others, fd)
        self._file = address, nbytes

    def map_shared(self, fd: int, nbytes: int, address: int) -> None:
        """Map a file until ``drop``. Raises NotMappable, NotShareable."""
        if fcntl.fcntl(fd, fcntl.F_GET_SEALS) & _size_stays != _size_stays:
            raise NotShareable("the size of a shared file is not sealed")
        if os.fstat(fd).st_size != nbytes:
            raise NotShareable("a shared file has another size")
        if sum(each for _, each in self._shared) + nbytes > _MOST_SHARED_BYTES:
            raise NotShareable(f"host and device may share {_MOST_SHARED_BYTES >> 30} GiB")
        _map(address, nbytes, _shared | _keep_others, fd)
        self._shared.append((address, nbytes))

    def is_shared(self, address: int, nbytes: int) -> bool:
        """Whether another process shares a part of this memory."""
        return any(at < address + nbytes and address < at + size for at, size in self._shared)

    def drop_file(self) -> None:
        """Unmap the file, if any."""
        address, nbytes = self._file
        if nbytes:
            _libc.munmap(address, nbytes)
        self._file = 0, 0

    def hold(self, ranges: Iterable[tuple[int, int]]) -> None:
        """Map exactly the pages of these ranges, each (address, nbytes). Raises NotMappable."""
        wanted = Ranges()
        for address, nbytes in ranges:
            last = -(-(address + nbytes) // _page_bytes) * _page_bytes
            wanted.add(address // _page_bytes * _page_bytes, last)
        for address, nbytes in self._shared:
            wanted.remove(address, address + nbytes)
        for held in self._pages:
            for start, end in wanted.outside(*held):
                self._give_back(start, end)
        for each in wanted:
            for start, end in self._pages.outside(*each):
                _map(start, end - start, _private | _anonymous | _keep_others, -1)
                self._pages.add(start, end)

    def _give_back(self, start: int, end: int) -> None:
        _libc.munmap(start, end - start)
        self._pages.remove(start, end)

    def drop(self) -> None:
        """Unmap everything."""
        self.drop_file()
        self.hold([])
        for address, nbytes in self._shared:
            _libc.munmap(address, nbytes)
        self._shared = []


def _map(address: int, nbytes: int, flags: int, fd: int) -> None:
    found = _libc.mmap(address, nbytes, _read_write, flags, fd, 0)
    if found == _failed:
        raise NotMappable(os.strerror(ctypes.get_errno()))
    if found != address:  # Linux before 4.17 takes the address for a wish
        _libc.munmap(found, nbytes)
        raise NotMappable("the addresses are taken")
