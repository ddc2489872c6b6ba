"""The lines that cost most, with a sentence each: what is wasted there and what to change."""

import math
from collections import Counter
from collections.abc import Iterator
from typing import Any

from nvfp4.cli.problem import Shape
from nvfp4.records.base import Record
from nvfp4.records.costs import Kernel, LineCost, ReadCost, all_lines, slots_a_pass

noticeable = 0.02
"""A share of the cost of all kernels; smaller waste is not mentioned."""

_bad_ratio = 1.5
_shared_share = 1 / 16
"""Reads of a smaller share of all distinct bytes are taken to be of data that threads share and
load repeatedly; they are judged by how often that happens."""

_too_often = 0.3
"""Largest share of all sectors that repeated loads of shared data may take."""

_threads_to_spare = 16 * 32 * 148
"""A read may be repeated by at least this many threads: 16 warps on each SM of a B200."""

_many_instructions = 4.0
"""Instructions of a lane for each element of a; more mean that values are decoded one by one."""

_much_decoding = 0.15
"""A share of the kernel's instructions, spent on decoding at one line."""

_rarely = 20
"""An address is called invariant if it stays the same this many times as often as it moves."""

_wide_bytes = 16


class Advice(Record):
    """A change of a line that would save issue slots."""

    code: str
    """The kind, for programs."""
    message: str
    wasted: float
    """Issue slots that the change would save."""
    arguments: dict[str, Any]
    """The numbers of the message."""


class CostlyLine(Record):
    """A line among those that cost most."""

    kernel: Kernel
    line: LineCost
    share: float
    """The share of the cost of all kernels."""
    advice: list[Advice]
    """The largest waste first; empty if nothing is wasted."""
    sentence: str


class _Context(Record):
    """Totals that a line is compared with."""

    kernel: Kernel
    shape: Shape
    slots: float
    sectors: int
    """Sectors of all kernels."""
    read_bytes: float
    """Distinct bytes that all kernels read."""


def costly_lines(kernels: list[Kernel], shape: Shape, top: int) -> list[CostlyLine]:
    """Return the lines that cost most, the costliest first; waste counts twice."""
    slots = sum(kernel.slots for kernel in kernels)
    sectors = sum(line.total("sectors") for _, line in all_lines(kernels))
    read_bytes = sum(_distinct(read) for _, line in all_lines(kernels) for read in line.reads)
    found = []
    for kernel, line in all_lines(kernels):
        if not line.instructions or line.line is None:
            continue
        advice = line_advice(line, _Context(kernel, shape, slots, sectors, read_bytes))
        sentence = "; ".join(each.message for each in advice[:2]) or _blameless(line)
        found.append(CostlyLine(kernel, line, line.slots / slots, advice, sentence))
    found.sort(key=lambda each: -each.line.slots - sum(a.wasted for a in each.advice))
    return found[:top]


def line_advice(line: LineCost, context: _Context) -> list[Advice]:
    """Return the advice on a line, the largest waste first."""
    rules = (_uncoalesced, _bank_conflict, _divergence, _repeated, _redundant, _narrow, _decoding)
    found = [each for rule in rules for each in rule(line, context)]
    worth = [each for each in found if each.wasted >= noticeable * context.slots]
    if any(each.code == "loop_invariant_load" for each in worth):  # it says the same, and why
        worth = [each for each in worth if each.code != "redundant_load"]
    return sorted(worth, key=lambda each: -each.wasted)


def kernel_notes(kernel: Kernel) -> Iterator[str]:
    """Yield sentences on a kernel as a whole."""
    threads = kernel.block[0] * kernel.block[1] * kernel.block[2]
    if threads % 32:
        yield (
            f"a block of {threads} threads leaves {-threads % 32} lanes of its last warp idle: "
            "take a multiple of 32"
        )
    if kernel.spilled_bytes:
        yield (
            f"{kernel.spilled_bytes} bytes of registers are spilled to local memory: keep fewer "
            "values alive, or allow more registers a thread"
        )
    elif kernel.local_bytes:
        yield (
            f"{kernel.local_bytes} bytes of each thread lie in local memory: what printf takes, or "
            "an array whose index the compiler does not know; unroll the loop over such an array"
        )


def _uncoalesced(line: LineCost, context: _Context) -> Iterator[Advice]:
    for access in line.accesses:
        if access.sectors < _bad_ratio * access.least_sectors or not access.requests:
            continue
        asked, least = access.sectors / access.requests, access.least_sectors / access.requests
        apart = ""
        if access.stride_bytes:
            verb = "write" if access.opcode.startswith("st") else "read"
            apart = f": neighbouring threads {verb} {access.stride_bytes:,} bytes apart"
        yield Advice(
            "uncoalesced",
            f"each warp asks for {_number(asked)} sectors where {_number(least)} would do{apart}; "
            "let neighbouring threads take neighbouring addresses",
            access.sectors - access.least_sectors,
            {"sectors": asked, "least_sectors": least, "stride_bytes": access.stride_bytes},
        )


def _bank_conflict(line: LineCost, context: _Context) -> Iterator[Advice]:
    for access in line.accesses:
        if access.passes < _bad_ratio * access.least_passes or not access.conflict_ways:
            continue
        ways, bank = access.conflict_ways, access.conflict_bank
        lanes = ", ".join(map(str, access.conflict_lanes[:3]))
        lanes += ", ..." if len(access.conflict_lanes) > 3 else ""
        yield Advice(
            "bank_conflict",
            f"{ways}-way bank conflict: lanes {lanes} hit bank {bank}; pad "
            "the row by one word or swizzle it",
            slots_a_pass * (access.passes - access.least_passes),
            {"ways": ways, "bank": bank, "lanes": access.conflict_lanes},
        )


def _divergence(line: LineCost, context: _Context) -> Iterator[Advice]:
    if line.divergences:
        yield Advice(
            "divergence",
            f"warps diverge here {line.divergences:,} times, and "
            f"{_percent(line.idle, context.slots)} of the cost goes to lanes that wait for the "
            "others of their warp; let all threads of a warp take the same way and as many steps",
            line.idle,
            {"divergences": line.divergences, "idle_instructions": line.idle},
        )


def _repeated(line: LineCost, context: _Context) -> Iterator[Advice]:
    for access in line.accesses:
        if access.repeats * 2 < access.requests or access.moves * _rarely > access.repeats:
            continue
        times = access.requests / max(access.requests - access.repeats, 1)
        yield Advice(
            "loop_invariant_load",
            f"each thread loads from the same address {_number(times)} times; load it once, before "
            "the loop, and keep it in a register",
            access.repeats * (1 + access.sectors / access.requests),
            {"times": times},
        )


def _redundant(line: LineCost, context: _Context) -> Iterator[Advice]:
    requested = sum(read.requested_bytes for read in line.reads)
    for read in line.reads:
        if read.times < _bad_ratio + 0.4:
            continue
        sectors = line.total("sectors") * read.requested_bytes / requested
        threads = context.kernel.ctas_total * math.prod(context.kernel.block)
        # With few rows, each needs its thread.
        too_many = threads >= _threads_to_spare and sectors >= _too_often * context.sectors
        if _is_shared(read, context) and not too_many:
            continue
        loads = sum(each.requests for each in line.accesses) * read.requested_bytes / requested
        least = "at least " if context.kernel.ctas_run < context.kernel.ctas_total else ""
        change = "load it once, for all that need it, through a register, shuffles or shared memory"
        if _is_shared(read, context):
            change = "let a thread keep what it has loaded for several rows"
        yield Advice(
            "redundant_load",
            f"each byte of {read.buffer} is loaded {least}{_number(read.times)} times by the "
            f"launch; {change}",
            (sectors + loads) * (1 - 1 / read.times),
            {"buffer": read.buffer, "times": read.times},
        )


def _is_shared(read: ReadCost, context: _Context) -> bool:
    return _distinct(read) < _shared_share * context.read_bytes


def _distinct(read: ReadCost) -> float:
    """Return the bytes that are read at least once."""
    return read.requested_bytes / max(read.times, 1.0)


def _narrow(line: LineCost, context: _Context) -> Iterator[Advice]:
    for access in line.accesses:
        if not 0 < access.nbytes <= 4 or not access.sectors or not access.opcode.startswith("ld"):
            continue
        name = "byte" if access.nbytes == 1 else "bytes"
        yield Advice(
            "narrow_load",
            f"each load brings a thread {access.nbytes} {name}; {_wide_bytes} at once take fewer "
            "instructions",
            access.requests * (1 - access.nbytes / _wide_bytes),
            {"nbytes": access.nbytes},
        )


def _decoding(line: LineCost, context: _Context) -> Iterator[Advice]:
    kernel, by_hand = context.kernel, _bit_work(line.opcodes)
    packed = any("e2m1x2" in opcode for each in kernel.lines for opcode in each.opcodes)
    if packed or by_hand < _much_decoding * kernel.instructions:
        return
    if 32 * kernel.instructions < _many_instructions * context.shape.elements:
        return
    if by_hand == max(_bit_work(each.opcodes) for each in kernel.lines):
        yield Advice(
            "scalar_conversions",
            f"{_percent(by_hand, kernel.instructions)} of the instructions take values apart bit "
            "by bit here; cvt.rn.f16x2.e2m1x2 decodes two values at once",
            by_hand / 2,
            {"instructions": by_hand},
        )


def _bit_work(opcodes: dict[str, int]) -> int:
    """Return the number of instructions that may decode values by hand."""
    kinds = ("and", "or", "xor", "shl", "shr", "bfe", "bfi", "lop3", "selp", "cvt", "setp")
    return sum(count for opcode, count in opcodes.items() if opcode.split(".")[0] in kinds)


def _blameless(line: LineCost) -> str:
    """Return a sentence on a line that wastes nothing noticeable."""
    said = []
    if sectors := line.total("sectors"):
        full = sectors <= 1.05 * line.total("least_sectors")
        said.append("full sectors" if full else "few sectors")
    said += [f"each byte of {read.buffer} once" for read in line.reads if read.times < 1.05]
    if 0 < line.total("passes") <= 1.05 * line.total("least_passes"):
        said.append("no bank conflicts")
    opcodes: Counter[str] = Counter()
    for opcode, count in line.opcodes.items():
        # Without what it tells the caches.
        opcodes[".".join(part for part in opcode.split(".") if "::" not in part)] += count
    total = max(opcodes.total(), 1)
    mix = ", ".join(f"{count / total:.0%} {opcode}" for opcode, count in opcodes.most_common(3))
    return f"no waste was found{''.join(f', {each}' for each in said)}: {mix}"


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 10 or abs(value - round(value)) < 0.05 else f"{value:.1f}"


def _percent(part: float, whole: float) -> str:
    return f"{part / max(whole, 1):.0%}"
