"""Branches, exits and traps, which generated code calls at the end of a block. Also the two
functions of the device runtime that kernels call, vprintf and __assertfail."""

import re
import struct
from typing import Any, TypeAlias

import numpy as np

from nvfp4.emulator.errors import DeviceTrap
from nvfp4.emulator.instructions import access, shared_access
from nvfp4.emulator.instructions.access_shape import Access
from nvfp4.emulator.instructions.action import Action, LaneSite, Site, Source, instruction
from nvfp4.emulator.loops import loop
from nvfp4.emulator.ptx.syntax import LocalAddress, Memory
from nvfp4.emulator.ptx.types import Array
from nvfp4.emulator.state.batch import Execution
from nvfp4.emulator.state.memory import WINDOW_SHIFT
from nvfp4.records.base import Record


class Divergence(Record):
    """The group's lanes go different ways."""

    ways: list[tuple[Array, int]]
    """(flat mask over the group, next block) of each way."""


# A block for the whole group, or None if no lane of it goes on now.
Next: TypeAlias = int | Divergence | None


def branch(ex: Execution, taken: int, following: int) -> Next:
    """`bra` under a guard."""
    assert ex.guard is not None
    if ex.guard.size == 1:
        return taken if ex.guard.reshape(-1)[0] else following
    if ex.guard.all():
        return taken
    if not ex.guard.any():
        return following
    mask = ex.mask()
    ex.batch.traffic.divergent_branches += _divided(mask, ex.group.warp)
    return Divergence([(mask, taken), (~mask, following)])


@loop
def _divided(mask, warp):  # type: ignore[no-untyped-def]
    """Return the number of warps with a lane where mask holds and one where it does not. Lanes of a
    warp stand next to each other."""
    count, last = 0, -1
    for i in range(1, mask.size):
        if mask[i] != mask[i - 1] and warp[i] == warp[i - 1] != last:
            count += 1
            last = warp[i]
    return count


def finish(ex: Execution, following: int) -> Next:
    """`exit`, and `ret` of the kernel."""
    lanes = ex.lanes()
    if lanes.size == 0:
        return following
    ex.batch.exit(lanes)
    shared_access.leave(ex.batch, lanes)
    all_of_them = lanes.size == ex.group.lanes.size
    return None if all_of_them else Divergence([(~ex.mask(), following)])


def trap(ex: Execution, site: Site, following: int) -> Next:
    """`trap`, and `brkpt` without a debugger, end the launch with an error."""
    lanes = ex.lanes()
    if lanes.size:
        site.lane(ex.batch, lanes[0]).fault(DeviceTrap, f"the kernel executed {site.opcode}")
    return following


_FORMAT = re.compile(r"%([-+ #0]*\d{0,3}(?:\.\d{1,3})?)(hh|h|ll|l|z|j|t)?([diouxXcsfFeEgGaAp%])")
_LONGEST_STRING = 4096


def _bytes(at: LaneSite, address: int, nbytes: int) -> bytes:
    """Return memory at a generic address, checked byte by byte like a thread's own loads."""
    found = bytearray()
    for i in range(address, address + nbytes):
        space = ("global", "shared", "local")[min(i >> WINDOW_SHIFT, 2)]
        what = Access(at.site, space, 1, 1, counted=False)
        lane = np.array([at.lane], np.int64)
        found += access.read(at.batch, what, space, np.array([i], np.uint64), lane).tobytes()
    return bytes(found)


def _string(at: LaneSite, address: int) -> str:
    """Return the zero-terminated string at a generic address."""
    out = bytearray()
    while len(out) < _LONGEST_STRING:
        byte = _bytes(at, address + len(out), 1)
        if byte == b"\0":
            break
        out += byte
    return out.decode("utf-8", "replace")


def formatted(template: str, argument: Any) -> str:
    """Format as printf does. argument(nbytes) returns the next argument's bytes, aligned to their
    size."""

    def one(match: re.Match[str]) -> str:
        flags, length, kind = match.groups()
        if kind == "%":
            return "%"
        if kind in "fFeEgGaA":
            (number,) = struct.unpack("<d", argument(8))
            return float(number).hex() if kind in "aA" else f"%{flags}{kind}" % number
        raw = argument(8 if length in ("l", "ll", "z", "j", "t") or kind in "sp" else 4)
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
    """Do `vprintf(format, arguments)`; the text goes to LaunchReport.output."""
    site.takes(2, 3)
    *target, template, arguments = site.operands
    sources = [Source(Memory(o, 0), "b64") for o in (template, arguments)]  # type: ignore[arg-type]

    def run(ex: Execution, form: Array, values: Array) -> None:
        batch, group, _ = ex
        pointers = [group.spread(offset) for offset in (form, values)]
        for i in ex.positions().tolist():
            at = site.lane(batch, group.lanes[i])
            batch.launch.output.append(_text(at, *(_local(at, int(p[i]), 8) for p in pointers)))
        if target and isinstance(target[0], LocalAddress):
            local = batch.local
            result = slice(target[0].offset, target[0].offset + 4)
            local.data.reshape(-1, local.stride)[group.lanes, result] = 0
            if local.undefined is not None:
                local.undefined.reshape(-1, local.stride)[group.lanes, result] = 0

    return Action("special", sources, [], run)


def _local(at: LaneSite, offset: int, nbytes: int) -> int:
    """Return an unsigned number in the lane's local memory, which holds the arguments of a call."""
    start = at.lane * at.batch.local.stride + offset
    return int.from_bytes(at.batch.local.data[start : start + nbytes].tobytes(), "little")


def _text(at: LaneSite, template: int, values: int) -> str:
    """Return the text that printf makes of a template and the arguments at `values`."""
    place = values

    def argument(wanted: int) -> Any:
        nonlocal place
        if wanted not in (4, 8):
            return _string(at, wanted)
        place = -(-place // wanted) * wanted
        raw = _bytes(at, place, wanted)
        place += wanted
        return raw

    return formatted(_string(at, template), argument)[:_LONGEST_STRING]


@instruction("__assertfail")
def assertfail(site: Site) -> Action:
    """void __assertfail(message, file, line, function, char size)."""
    site.takes(5, 6)
    *_, message, file, line, function, _size = (None, *site.operands)

    def run(ex: Execution) -> None:
        lanes = ex.lanes()
        if lanes.size == 0:
            return
        at = site.lane(ex.batch, lanes[0])
        words = []
        for operand in (message, file, function):
            assert isinstance(operand, LocalAddress)
            pointer = _local(at, operand.offset, 8)
            words.append(_string(at, pointer) if pointer else "?")
        assert isinstance(line, LocalAddress)
        place = f"{words[1].rpartition('/')[2]}:{_local(at, line.offset, 4)}"
        at.fault(DeviceTrap, f"assertion failed: {words[0]} in {words[2]} ({place})")

    return Action("special", [], [], run)
