"""Launches taken down instead of run, with the memory that they may touch.

A recorder keeps track of what another process knows of device memory that is this process's own:
it says which regions there are, and hands over the bytes of new ones and what host code has set
since. What launches write is known there and not here.
"""

from __future__ import annotations

import ctypes
import itertools
import mmap
from typing import Any

import numpy as np

from nvfp4.records.launch import Buffer, Launch, Memory, Note, View

_most_runs = 4096
"""Of bytes that host code has set between two launches."""

Bytes = np.ndarray[Any, np.dtype[np.uint8]]


class NotRecorded(Exception):
    """Host code needs what only a run could give, or there is too much to hand over."""


class Recorder:
    """Takes down calls. An `Observer` of `host_access`.

    launched: whether any launch was taken down, since when memory is not what it would be.
    refused: why the current call cannot be taken down, None if it can.
    """

    def __init__(self, outbox: mmap.mmap, memory: Memory) -> None:
        """outbox: where bytes are handed over, from its beginning in each call. memory: all that
        launches may touch.
        """
        self._memory = memory
        self._outbox = np.frombuffer(outbox, np.uint8)
        self._used = 0
        self._texts: dict[str, int] = {}
        self._mirrors: dict[tuple[int, int], Bytes] = {}
        self._variables: dict[tuple[str, str], tuple[Buffer, Bytes | None]] = {}
        self._judges = Buffer("", 0, 0)
        self._output = Buffer("", 0, 0)
        self._output_mirror: Bytes = np.zeros(0, np.uint8)
        self.launched = False
        self.refused: str | None = None
        self._new_texts: list[list[int]] = []
        self._steps: list[dict[str, Any]] = []
        self._set: list[tuple[int, int]] = []
        self._listed: list[Any] | None = None
        self._searched = False

    def begin(self, inputs: tuple[int, int], output: tuple[int, int]) -> None:
        """Begin a call. inputs: address and size of the caller's memory, all of it; output: of what
        launches may write there. The other process knows the contents of both.
        """
        self._judges, self._output = Buffer("", *inputs), Buffer("", *output)
        self._output_mirror = _contents(self._output).copy()
        self._used = 0
        self._new_texts, self._steps, self._set = [], [], []
        self._listed = None
        self._searched = False
        self.refused = None

    def finish(self) -> dict[str, Any]:
        """What was taken down since `begin`, as plain values: see `records.launch_records`. Raises
        NotRecorded.
        """
        if self.refused is None:
            self._step(None)
        return {"texts": self._new_texts, "steps": self._steps}

    def launch(self, launch: Launch) -> None:
        """Take down a launch. Raises NotRecorded."""
        if self.refused is not None:
            raise NotRecorded(self.refused)
        if launch.trial:
            # What it leaves in memory would count, and its work would not.
            raise self._failed("host code tries configurations")
        self.launched = True
        notes = [_listed(each) for each in launch.notes]
        text = self._text(launch.ptx)
        self._step(
            {
                "text": text,
                "kernel": launch.kernel,
                "grid": list(map(int, launch.grid)),
                "block": list(map(int, launch.block)),
                "cluster": list(map(int, launch.cluster)),
                "shared_bytes": int(launch.shared_bytes),
                "stream": int(launch.stream),
                "programmatic": bool(launch.programmatic),
                "parameters": [bytes(each).hex() for each in launch.parameters],
                "notes": notes,
            },
        )

    def add_note(self, kernel: str, note: Note) -> None:
        """What is to be said about the last launch of a kernel, or of any if there is none."""
        launches = [step["launch"] for step in self._steps if step["launch"]]
        those = [each for each in launches if each["kernel"] == kernel] or launches
        if those:
            those[-1]["notes"].append(_listed(note))

    def found_variable(self, ptx: str, name: str, variable: Buffer) -> None:
        """Host code may set a variable of a module, which lies here."""
        self._variables.setdefault((ptx, name), (variable, None))

    def reads(self, address: int, nbytes: int) -> None:
        """Raises NotRecorded where a launch may have written before."""
        if _overlap(self._output, address, nbytes):
            self._refuse("host code reads c")
        elif _overlap(self._judges, address, nbytes):
            self._refuse("host code reads the inputs")
        elif any(_overlap(Buffer("", *key), address, nbytes) for key in self._mirrors):
            self._refuse("host code reads memory of a kernel")

    def wrote(self, address: int, nbytes: int) -> None:
        """These bytes are handed over with the next launch."""
        self._set.append((address, nbytes))

    def _refuse(self, why: str) -> None:
        self.refused = why
        if self.launched:  # a kernel should have run before this
            raise NotRecorded(why)

    def _failed(self, why: str) -> NotRecorded:
        self.refused = why
        return NotRecorded(why)

    def _step(self, launch: dict[str, Any] | None) -> None:
        regions = self._regions()
        writes = self._host_writes(regions)
        listed = [_described(each) for each in regions]
        self._steps.append(
            {
                "regions": None if listed == self._listed else listed,
                "writes": writes,
                "variables": self._changed_variables(),
                "launch": launch,
            }
        )
        self._listed = listed

    def _regions(self) -> list[Buffer]:
        """This process's own memory that a launch may touch."""
        # Young objects are looked at each time, old ones once in a call.
        found = self._memory.known()
        for each in itertools.islice(self._memory.search(), 1 if self._searched else None):
            found = each
        self._searched = True
        inside = self._judges
        return [b for b in found if b.nbytes and not _overlap(inside, b.address, b.nbytes)]

    def _host_writes(self, regions: list[Buffer]) -> list[list[int]]:
        """Hands over new regions, and of the others what host code has set."""
        writes: list[list[int]] = []
        before, self._mirrors = self._mirrors, {}
        spans = _merged(self._set)
        self._set = []
        for region in regions:
            key = region.address, region.nbytes
            now, mirror = _contents(region), before.get(key)
            if mirror is None:
                self._mirrors[key] = now.copy()
                writes.append(self._handed_over(region.address, now))
            else:
                self._mirrors[key] = mirror
                writes += self._changes(region.address, now, mirror, spans)
        output = self._output
        writes += self._changes(output.address, _contents(output), self._output_mirror, spans)
        if len(writes) > _most_runs:
            raise self._failed("host code sets device memory at too many places")
        return writes

    def _changes(
        self, address: int, now: Bytes, mirror: Bytes, spans: list[tuple[int, int]]
    ) -> list[list[int]]:
        """Hands over what of a region lies in spans that were set, or is not as it was."""
        here = [
            (max(start - address, 0), min(end - address, now.size))
            for start, end in spans
            if start < address + now.size and address < end
        ]
        for start, end in here:
            mirror[start:end] = now[start:end]
        if not np.array_equal(now, mirror):  # set in a way that nobody has told of
            places = np.flatnonzero(now != mirror)
            breaks = np.flatnonzero(np.diff(places) > 1)
            starts, ends = places[[0, *(breaks + 1)]], places[[*breaks, -1]] + 1
            here += zip(starts.tolist(), ends.tolist(), strict=True)
            mirror[:] = now
        if len(here) > _most_runs:
            raise self._failed("host code sets device memory at too many places")
        return [self._handed_over(address + start, now[start:end]) for start, end in here]

    def _changed_variables(self) -> list[list[Any]]:
        changed = []
        for key, (variable, mirror) in self._variables.items():
            now = _contents(variable)
            if mirror is None or not np.array_equal(now, mirror):
                self._variables[key] = variable, now.copy()
                _, nbytes, offset = self._handed_over(0, now)
                changed.append([self._text(key[0]), key[1], nbytes, offset])
        return changed

    def _handed_over(self, address: int, data: Bytes) -> list[int]:
        """Address, size and place in the outbox."""
        start, end = self._used, self._used + data.size
        if end > self._outbox.size:
            raise self._failed("there is too much memory to hand over")
        self._outbox[start:end] = data
        self._used = end
        return [address, data.size, start]

    def _text(self, ptx: str) -> int:
        """The number of a text, which is handed over once."""
        if ptx not in self._texts:
            data = np.frombuffer(ptx.encode(), np.uint8)
            _, nbytes, offset = self._handed_over(0, data)
            self._texts[ptx] = len(self._texts)
            self._new_texts.append([nbytes, offset])
        return self._texts[ptx]


def _listed(note: Note) -> list[Any]:
    return [note.code, note.message, note.hint, note.file, note.line]


def _described(region: Buffer) -> list[Any]:
    return [region.name, region.address, region.nbytes, region.writable, _view(region.view)]


def _view(view: View | None) -> list[Any] | None:
    return None if view is None else [list(view.shape), list(view.strides), view.offset]


def _contents(buffer: Buffer) -> Bytes:
    if not buffer.nbytes:
        return np.zeros(0, np.uint8)
    pointer = ctypes.cast(buffer.address, ctypes.POINTER(ctypes.c_uint8))
    return np.ctypeslib.as_array(pointer, (buffer.nbytes,))


def _overlap(buffer: Buffer, address: int, nbytes: int) -> bool:
    return address < buffer.end and buffer.address < address + nbytes


def _merged(spans: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """(address, nbytes) as (start, end) in order, those that touch as one."""
    merged: list[tuple[int, int]] = []
    for address, nbytes in sorted(spans):
        if merged and address <= merged[-1][1]:
            merged[-1] = merged[-1][0], max(merged[-1][1], address + nbytes)
        else:
            merged.append((address, address + nbytes))
    return merged
