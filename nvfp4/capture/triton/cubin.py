"""What ptxas says of a kernel in the machine code that it makes."""

from __future__ import annotations

import struct

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
