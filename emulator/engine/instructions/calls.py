"""The two functions of the device runtime that kernels call: vprintf and __assertfail."""

from __future__ import annotations

import re
import struct
from typing import Any

import numpy as np

from nvfp4.emulator.engine import access
from nvfp4.emulator.engine.access import Access
from nvfp4.emulator.engine.action import Action, Site, Source, instruction
from nvfp4.emulator.engine.batch import Batch
from nvfp4.emulator.engine.group import Group
from nvfp4.emulator.engine.instructions.mbarrier import taking_part
from nvfp4.emulator.engine.memory import WINDOW_SHIFT
from nvfp4.emulator.errors import DeviceTrap
from nvfp4.emulator.ptx.program import LocalAddress, Memory

Array = np.ndarray[Any, Any]

_FORMAT = re.compile(r"%([-+ #0]*\d*(?:\.\d+)?)(hh|h|ll|l|z|j|t)?([diouxXcsfFeEgGaAp%])")
_LONGEST_STRING = 4096


def _bytes(site: Site, batch: Batch, lane: int, address: int, nbytes: int) -> bytes:
    """Memory at a generic address, checked as a thread's own load."""
    space = ("global", "shared", "local")[min(address >> WINDOW_SHIFT, 2)]
    what = Access(site, space, 1, nbytes, counted=False)
    data = access.read(
        batch, what, space, np.array([address], np.uint64), np.array([lane], np.int64)
    )
    return data.tobytes()


def _string(site: Site, batch: Batch, lane: int, address: int) -> str:
    out = bytearray()
    while len(out) < _LONGEST_STRING:
        byte = _bytes_unaligned(site, batch, lane, address + len(out))
        if byte == 0:
            break
        out.append(byte)
    return out.decode("utf-8", "replace")


def _bytes_unaligned(site: Site, batch: Batch, lane: int, address: int) -> int:
    return _bytes(site, batch, lane, address, 1)[0]


def _word(site: Site, batch: Batch, lane: int, address: int, nbytes: int) -> bytes:
    return b"".join(_bytes(site, batch, lane, address + i, 1) for i in range(nbytes))


def formatted(template: str, argument: Any) -> str:
    """printf: argument(nbytes) gives the next argument's bytes, aligned to their size."""

    def one(match: re.Match[str]) -> str:
        flags, length, kind = match.groups()
        if kind == "%":
            return "%"
        if kind in "fFeEgGaA":
            (number,) = struct.unpack("<d", argument(8))
            if kind in "aA":
                return float(number).hex()
            return f"%{flags}{kind}" % number
        wide = length in ("l", "ll", "z", "j", "t") or kind in "sp"
        raw = argument(8 if wide else 4)
        if kind == "s":
            return f"%{flags}s" % argument(int.from_bytes(raw, "little"))
        number = int.from_bytes(raw, "little", signed=kind in "di")
        if kind == "p":
            return f"{number:#x}"
        if kind == "c":
            return f"%{flags}c" % (number & 0xFF)
        return f"%{flags}{'d' if kind in 'diu' else kind}" % number

    return _FORMAT.sub(one, template)


@instruction("vprintf")
def vprintf(site: Site) -> Action:
    """int vprintf(const char *format, void *arguments): text goes to LaunchReport.output."""
    site.takes(2, 3)
    *target, template, arguments = site.operands
    sources = [Source(Memory(o, 0), "b64") for o in (template, arguments)]  # type: ignore[arg-type]

    def run(
        batch: Batch, group: Group, guard: Array | None, form: Array, values: Array
    ) -> tuple[Array, ...]:
        for i in taking_part(group, guard).tolist():
            lane = int(group.lanes[i])
            pointers = [
                int.from_bytes(_local(batch, lane, int(group.spread(a)[i]), 8), "little")
                for a in (form, values)
            ]
            batch.launch.output.append(_text(site, batch, lane, pointers[0], pointers[1]))
        if target and isinstance(target[0], LocalAddress):
            batch.local[group.lanes, target[0].offset : target[0].offset + 4] = 0
        return ()

    return Action("special", sources, [], run)


def _local(batch: Batch, lane: int, offset: int, nbytes: int) -> bytes:
    raw: bytes = batch.local[lane, offset : offset + nbytes].tobytes()
    return raw


def _text(site: Site, batch: Batch, lane: int, template: int, values: int) -> str:
    place = values

    def argument(wanted: int) -> Any:
        nonlocal place
        if wanted not in (4, 8):
            return _string(site, batch, lane, wanted)
        place = -(-place // wanted) * wanted
        raw = _word(site, batch, lane, place, wanted)
        place += wanted
        return raw

    return formatted(_string(site, batch, lane, template), argument)


@instruction("__assertfail")
def assertfail(site: Site) -> Action:
    """void __assertfail(message, file, line, function, char size)."""
    site.takes(5, 6)
    *_, message, file, line, function, _size = (None, *site.operands)

    def run(batch: Batch, group: Group, guard: Array | None) -> tuple[Array, ...]:
        at = taking_part(group, guard)
        if at.size == 0:
            return ()
        lane = int(group.lanes[at[0]])
        words = []
        for operand in (message, file, function):
            assert isinstance(operand, LocalAddress)
            pointer = int.from_bytes(_local(batch, lane, operand.offset, 8), "little")
            words.append(_string(site, batch, lane, pointer) if pointer else "?")
        assert isinstance(line, LocalAddress)
        number = int.from_bytes(_local(batch, lane, line.offset, 4), "little")
        raise site.fail(
            DeviceTrap,
            f"assertion failed: {words[0]} in {words[2]} ({words[1]}:{number})",
            batch,
            lane,
        )

    return Action("special", [], [], run)
