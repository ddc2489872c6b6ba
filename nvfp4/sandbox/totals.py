"""Limits of all processes of a submission together, which per-process limits cannot set.

A process outside of the confinement looks now and then (``namespaces.enter``), so that a total can
be exceeded for a moment. A look is short whatever there is to see, as each of its loops ends at a
limit or when memory is short.
"""

import math
import operator
import os
import stat
import time
from collections.abc import Iterable
from itertools import count
from pathlib import Path

from nvfp4.records.options import options_of_environment
from nvfp4.sandbox import machine
from nvfp4.sandbox.isolation import data_share, descendants, own_threads

look_s = 0.2

disk_bytes = 8 << 30
"""Limit of scratch and cache together, or half of the free space if that is less."""

most_open_files = 1 << 15

_NOTICED_BYTES = 128 << 20
"""Free space must fall by this much before folder sizes are counted again."""

_LEAST_LEFT_BYTES = 512 << 20
"""Memory of the machine that must stay free, or half of the initially free memory. This limits
memory that no process is charged for, such as that of files in transit through a socket."""

_LONGEST_TURN_S = 1.0

_FILES_AT_A_TIME = 512


class _Exceeded(Exception):
    """A limit is exceeded; ``str`` is a sentence."""


class Totals:
    """Limits on a process, its descendants, and the folders that they can write.

    gives_way: if too many threads run, they get only cores that are otherwise idle.
    """

    def __init__(self, root: int, writable: list[Path], gives_way: bool = False) -> None:
        self._root, self._writable, self._gives_way = root, writable, gives_way
        self._least_left_bytes = min(_LEAST_LEFT_BYTES, machine.left_bytes() // 2)
        self._short_since: float | None = None
        self._threads = min(own_threads, machine.left_threads() * 3 // 4)
        self._room_bytes = [machine.free_bytes(folder, True) for folder in writable]
        self._most_bytes = (options_of_environment().limit_gib << 30) or machine.unlimited
        spare = (machine.free_bytes(folder) // 2 for folder in writable)
        self._disk_bytes = min(disk_bytes, self._most_bytes, *spare)

    def exceeded(self) -> str | None:
        """Return which limit is exceeded, in a sentence."""
        pids = [self._root, *descendants(self._root)]
        try:
            self._look_at_threads(pids)
            self._look_at_memory(pids)
            self._look_at_disk()
        except _Exceeded as exceeded:
            return str(exceeded)
        return None

    def _look_at_threads(self, pids: list[int]) -> None:
        threads = sum(map(machine.threads, pids))
        if threads > self._threads:
            message = f"its processes had {threads} threads, of {self._threads} that they may have"
            raise _Exceeded(message)
        crowd = _crowd()
        if self._gives_way and threads > crowd and machine.running_threads(pids) > crowd:
            machine.give_way(pids)

    def _look_at_memory(self, pids: list[int]) -> None:
        most = min(int(data_share * machine.memory_bytes()), self._most_bytes)
        resident = sum(map(machine.resident_bytes, pids))
        self._look_at_what_is_left(pids, resident)
        unlinked = self._unlinked_bytes(pids, resident)
        total = unlinked + resident
        if total > most:  # pages that forks share may count for each of them
            total = unlinked
            for pid in pids:
                total += machine.proportional_bytes(pid)
                self._look_at_what_is_left(pids, total)
        if total > most:
            raise _Exceeded(
                f"its processes took {_gib(total)} of memory, of {_gib(most)} that they may take"
            )

    def _unlinked_bytes(self, pids: list[int], resident_bytes: int) -> int:
        """Return the bytes of open files without a name: memfds and deleted files."""
        found: dict[tuple[int, int], int] = {}
        for number, file in zip(count(1), machine.open_files(pids)):
            if stat.S_ISREG(file.st_mode) and not file.st_nlink:
                found[file.st_dev, file.st_ino] = file.st_blocks * 512
            if number > most_open_files:
                raise _Exceeded(f"its processes had more than {most_open_files} files open")
            if number % _FILES_AT_A_TIME == 0:
                self._look_at_what_is_left(pids, resident_bytes + sum(found.values()))
        return sum(found.values())

    def _look_at_what_is_left(self, pids: Iterable[int], nbytes: int) -> None:
        """Check free memory. If it is short, the submission that takes most is stopped first, as
        those of other judges have such limits too. nbytes: known memory of these processes."""
        left = machine.left_bytes()
        if left >= self._least_left_bytes:
            self._short_since = None
            return
        now = time.monotonic()
        if self._short_since is None:
            self._short_since = now
            if machine.files_on_their_way(pids, most_open_files):  # which may be of any size
                self._short_since = -math.inf
        nbytes += machine.sockets(self._root) * _socket_bytes()
        if now - self._short_since >= _turn_s(nbytes / machine.memory_bytes()):
            raise _Exceeded(f"this machine has {_gib(left)} of memory left")

    def _look_at_disk(self) -> None:
        room = [machine.free_bytes(folder, True) for folder in self._writable]
        if max(map(operator.sub, self._room_bytes, room), default=0) < _NOTICED_BYTES:
            return
        self._room_bytes = room
        nbytes = sum(machine.size_bytes(folder, self._disk_bytes) for folder in self._writable)
        if nbytes > self._disk_bytes:
            raise _Exceeded(f"its files took more than {_gib(self._disk_bytes)}")


def _turn_s(share: float) -> float:
    """Return the delay in seconds before processes with this share of the memory are stopped for
    lack of it.

    Half the share adds one check, so that a larger share is stopped earlier.
    """
    looks = math.floor(-math.log2(share)) if 0 < share < 1 else 0 if share else math.inf
    return min(looks * look_s, _LONGEST_TURN_S)


def _crowd() -> int:
    """Return how many threads may run at once before their priority is lowered."""
    return max(16, 4 * len(os.sched_getaffinity(0)))


def _socket_bytes() -> int:
    """Socket buffer memory that no process is charged for: twice what a program may request."""
    try:
        return 2 * int(Path("/proc/sys/net/core/wmem_max").read_text())
    except (OSError, ValueError):
        return 0


def _gib(nbytes: float) -> str:
    return f"{nbytes / 2**30:.1f} GiB"
