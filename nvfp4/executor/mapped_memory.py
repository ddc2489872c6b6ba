"""Memory at addresses that another process has chosen."""

from __future__ import annotations

import ctypes
import mmap
import os
from collections.abc import Iterable

import numpy as np

_page_bytes = mmap.PAGESIZE
_read_write, _shared, _private, _anonymous, _keep_others = 3, 0x01, 0x02, 0x20, 0x100000
_failed = ctypes.c_void_p(-1).value

Pages = list[tuple[int, int]]
"""Ranges of addresses (start, end) in order, whole pages that do not touch."""

Bytes = np.ndarray[tuple[int], np.dtype[np.uint8]]


class NotMappable(Exception):
    """Something of this process lies there."""


class MappedMemory:
    """Pages with zeros, which keep their contents for as long as they are asked for, and one file
    beside them. Nothing that this process has otherwise is ever replaced."""

    def __init__(self) -> None:
        self._pages: Pages = []
        self._file: tuple[int, int] = (0, 0)

    def map_file(self, fd: int, nbytes: int, address: int) -> None:
        """The one file, at the start of a page. Raises NotMappable."""
        self.drop_file()
        _map(address, nbytes, _shared | _keep_others, fd)
        self._file = address, nbytes

    def drop_file(self) -> None:
        """No file is mapped any more."""
        address, nbytes = self._file
        if nbytes:
            _unmap(address, nbytes)
        self._file = 0, 0

    def hold(self, ranges: Iterable[tuple[int, int]]) -> None:
        """Just the pages of these ranges, each as (address, nbytes). Raises NotMappable."""
        wanted = pages_of(ranges)
        for start, end in _without(self._pages, wanted):
            _unmap(start, end - start)
        kept = _without(self._pages, _without(self._pages, wanted))
        self._pages = kept
        for start, end in _without(wanted, kept):
            _map(start, end - start, _private | _anonymous | _keep_others, -1)
            self._pages = pages_of([*((s, e - s) for s, e in self._pages), (start, end - start)])

    def drop(self) -> None:
        """Nothing is mapped any more."""
        self.drop_file()
        self.hold([])


def contents(address: int, nbytes: int) -> Bytes:
    """The bytes at an address, as they are."""
    pointer = ctypes.cast(address, ctypes.POINTER(ctypes.c_uint8))
    return np.ctypeslib.as_array(pointer, (nbytes,))


def pages_of(ranges: Iterable[tuple[int, int]]) -> Pages:
    """The whole pages that hold these ranges, each as (address, nbytes)."""
    merged: Pages = []
    for address, nbytes in sorted(ranges):
        start = address // _page_bytes * _page_bytes
        end = -(-(address + nbytes) // _page_bytes) * _page_bytes
        if merged and start <= merged[-1][1]:
            merged[-1] = merged[-1][0], max(merged[-1][1], end)
        else:
            merged.append((start, end))
    return merged


def _without(pages: Pages, others: Pages) -> Pages:
    """What of the first is not in the second."""
    left: Pages = []
    for start, end in pages:
        for other_start, other_end in others:
            if other_end <= start or end <= other_start:
                continue
            if start < other_start:
                left.append((start, other_start))
            start = max(start, min(other_end, end))
        if start < end:
            left.append((start, end))
    return left


def _map(address: int, nbytes: int, flags: int, fd: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_int64]
    found = libc.mmap(address, nbytes, _read_write, flags, fd, 0)
    if found == _failed:
        raise NotMappable(os.strerror(ctypes.get_errno()))
    if found != address:  # Linux before 4.17 takes the address for a wish
        _unmap(found, nbytes)
        raise NotMappable("the addresses are taken")


def _unmap(address: int, nbytes: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
    libc.munmap(address, nbytes)
