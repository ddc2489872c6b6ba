"""Machine instructions as the simulation sees them: pipes, latencies, memory."""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np

from nvfp4.emulator.ptx.types import Array
from nvfp4.model.gpu import Gpu
from nvfp4.model.paths import Paths
from nvfp4.model.sass import NO_SCOREBOARD, Code, Instruction
from nvfp4.model.traffic import Access

FIXED, VARIABLE, LOAD, STORE, SHARED, BARRIER, ASYNC, COMMIT, AWAIT, BULK, BULK_WAIT = range(11)
"""Kinds of instructions."""

ISSUE, FMA, HALF, ALU, IMAD, XU, LSU, UNIFORM, TENSOR = range(9)
"""Pipes; what uses none of them only takes its turn."""

PIPES = ("issue", "fma", "half", "alu", "imad", "xu", "lsu", "uniform", "tensor")

CODE_LINE_BYTES = 128
_INSTRUCTION_BYTES = 16

_FMA = frozenset(("FFMA", "FMUL", "FADD"))
_PACKED = frozenset(("FFMA2", "FMUL2", "FADD2"))
_HALF = frozenset(("HFMA2", "HMUL2", "HADD2"))
_IMAD = frozenset(("IMAD", "IDP", "IDP4A", "IMUL"))
_XU = frozenset(("MUFU", "I2F", "F2I", "F2F", "FRND", "POPC", "FLO", "BREV", "I2I"))
_TENSOR = frozenset(("HMMA", "IMMA", "BMMA", "QMMA", "OMMA", "DMMA"))
_NONE = frozenset(("NOP", "BRA", "EXIT", "BSSY", "BSYNC", "WARPSYNC", "RET", "CALL", "BREAK"))
_GLOBAL_LOADS = frozenset(("LDG", "LD", "ATOMG", "ATOM"))
_GLOBAL_STORES = frozenset(("STG", "ST", "RED", "REDG"))
_SHARED = frozenset(("LDS", "STS", "LDSM", "STSM", "ATOMS"))
_LOCAL = frozenset(("LDL", "STL"))
_SLOW_READS = frozenset(("S2R", "S2UR", "CS2R", "LDC", "LDCU", "ULDC", "R2UR"))
_WIDTH = re.compile(r"\.(256|128|64)\b")
_BULK = frozenset(("UBLKCP", "UTMALDG", "UTMASTG", "UBLKPF"))
_DEFAULT_LATENCY = 24
"""Of a shuffle, a special register or a conversion: 20 to 30 cycles in every measurement (Jia et
al. 2018, table 4.1; Luo et al., arXiv 2402.13499, for Hopper)."""


@dataclass(frozen=True)
class Machine:
    """Arrays by instruction. See `multiprocessor.simulate`."""

    kind: Array
    pipe: Array
    interval: Array
    stall: Array
    waits: Array
    sets: Array
    reads: Array
    latency: Array
    own: Array
    shared: Array
    busy: Array
    own_rate: Array
    shared_rate: Array
    code_line: Array
    trace: Array
    trace_start: Array
    of_warp: Array


def machine(
    gpu: Gpu, code: Code, paths: Paths, accesses: dict[int, Access], l2_share: float
) -> Machine:
    """l2_share: of the sectors that several thread blocks want, how many an SM has to fetch."""
    described = []
    for each in code.instructions:
        access = accesses.get(each.line, Access())
        row = _described(gpu, each, access, l2_share)
        own, shared = row[4:6]
        described.append(
            (
                *row,
                access.own_requests if own and access.own else 1.0,
                shared / (32 * access.shared) * access.shared_requests
                if shared and access.shared
                else 1.0,
            )
        )
    columns = list(zip(*described, strict=True))
    integers = [np.array(column, np.int64) for column in columns[:4]]
    floats = [np.array(column, np.float64) for column in columns[4:]]
    kind, pipe, interval, latency = integers
    own, shared, busy, own_rate, shared_rate = floats
    each = code.instructions
    starts = np.cumsum([0, *map(len, paths.traces)])
    return Machine(
        kind=kind,
        pipe=pipe,
        interval=interval,
        stall=np.array([max(1, i.stall) for i in each], np.int64),
        waits=np.array([i.waits for i in each], np.int64),
        sets=np.array([i.sets if i.sets != NO_SCOREBOARD else -1 for i in each], np.int64),
        reads=np.array([i.reads if i.reads != NO_SCOREBOARD else -1 for i in each], np.int64),
        latency=latency,
        own=own,
        shared=shared,
        busy=busy,
        own_rate=own_rate,
        shared_rate=shared_rate,
        code_line=np.arange(len(each), dtype=np.int64) * _INSTRUCTION_BYTES // CODE_LINE_BYTES,
        trace=np.concatenate([np.array(t, np.int64) for t in paths.traces]),
        trace_start=starts.astype(np.int64),
        of_warp=np.array(paths.of_warp, np.int64),
    )


def _described(
    gpu: Gpu, each: Instruction, access: Access, l2_share: float
) -> tuple[int, int, int, int, float, float, float]:
    """kind, pipe, interval, latency; own and shared bytes that are fetched; cycles of the LSU."""
    name = each.name
    wide = _WIDTH.search(each.opcode)
    bytes_a_lane = int(wide[1]) // 8 if wide else 4
    if name in _GLOBAL_LOADS or name == "LDGSTS":
        own, shared = 32 * access.own, 32 * access.shared * l2_share
        if ".NA" in each.opcode:
            shared = 32 * access.shared
        busy = max(1.0, access.lines / gpu.l1_tags, 32 * access.sectors / gpu.l1_bytes)
        kind = ASYNC if name == "LDGSTS" else LOAD
        latency = gpu.l2_latency if name.startswith("ATOM") else gpu.l1_latency
        return kind, LSU, 2, latency, own, shared, busy
    if name in _GLOBAL_STORES:
        busy = max(1.0, access.lines / gpu.l1_tags, 32 * access.sectors / gpu.l1_bytes)
        return STORE, LSU, 2, gpu.l1_latency, 0.0, 32 * access.shared, busy
    if name in _SHARED:
        least = max(1.0, bytes_a_lane / 4)
        return SHARED, LSU, 2, gpu.shared_latency, 0.0, 0.0, max(access.passes, least)
    if name in _LOCAL:
        return SHARED, LSU, 2, gpu.l1_latency, 0.0, 0.0, max(1.0, bytes_a_lane / 4)
    if name == "SHFL":
        return SHARED, LSU, 2, _DEFAULT_LATENCY, 0.0, 0.0, 1.0
    if name in ("BAR", "UCGABAR_WAIT") and "ARV" not in each.opcode:
        return BARRIER, ISSUE, 1, gpu.barrier, 0.0, 0.0, 0.0
    if name == "LDGDEPBAR":
        return COMMIT, ISSUE, 1, 0, 0.0, 0.0, 0.0
    if name == "DEPBAR" and ".LE" in each.opcode:
        groups = re.search(r"SB\d, (0x[0-9a-f]+)", each.text)
        return AWAIT, ISSUE, 1, int(groups[1], 16) if groups else 0, 0.0, 0.0, 0.0
    if name in _BULK:
        moved = access.copied if name != "UTMASTG" else 0.0
        return BULK, UNIFORM, 2, gpu.l1_latency, moved, 0.0, 1.0
    if name == "SYNCS" and "TRYWAIT" in each.opcode:
        return BULK_WAIT, UNIFORM, 2, _DEFAULT_LATENCY, 0.0, 0.0, 0.0
    pipe, interval = _pipe(gpu, each)
    return VARIABLE, pipe, interval, _DEFAULT_LATENCY, 0.0, 0.0, 0.0


def _pipe(gpu: Gpu, each: Instruction) -> tuple[int, int]:
    """Which pipe of its scheduler an instruction keeps busy, and for how many cycles."""
    name = each.name
    if name in _NONE:
        return ISSUE, 1
    if name in _FMA:
        return FMA, gpu.fma
    if name in _PACKED:
        return FMA, gpu.packed
    if name in _HALF:
        return HALF, gpu.half
    if name in _IMAD:
        return IMAD, gpu.imad
    if name == "F2FP" and "UNPACK" in each.opcode:
        return ALU, gpu.unpack
    if name in _XU:
        return XU, gpu.xu
    if name in _TENSOR:
        return TENSOR, gpu.tensor
    if name in _SLOW_READS or name.startswith("U"):
        return UNIFORM, 2
    return ALU, gpu.alu
