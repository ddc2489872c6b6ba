"""Machine instructions as the simulation sees them: pipes, latencies, and the memory level that
serves the requests of each statement, from what `emulator.work` counts."""

import re
from dataclasses import replace
from typing import get_type_hints

import numpy as np

from nvfp4.emulator.ptx.types import Array
from nvfp4.emulator.state import barriers
from nvfp4.emulator.work import SECTOR_BYTES, Asked, Sampled
from nvfp4.model.gpu import Gpu, NoPrediction
from nvfp4.model.sass import NO_SCOREBOARD, Code, Instruction
from nvfp4.records.base import Record

(
    FIXED, VARIABLE, LOAD, STORE, SHARED, BARRIER, ARRIVAL, ASYNC, COMMIT, AWAIT, BULK, BULK_WAIT,
) = range(12)  # fmt: skip
"""Kinds of instructions; an ARRIVAL does not wait at its barrier."""
BARRIERS = barriers.BARRIERS + 1
"""Those of a CTA; the last number stands for its cluster's barrier."""

ISSUE, EITHER, BOTH, HEAVY, ALU, XU, LSU, UNIFORM, TENSOR = range(9)
"""Pipes; an instruction that uses none only takes its issue slot. The pipe for multiplications has
a heavy and a light half: an instruction takes either, both, or the heavy one."""

_FMA = frozenset(("FFMA", "FMUL", "FADD"))
_PACKED = frozenset(("FFMA2", "FMUL2", "FADD2"))
_HALF = frozenset(("HFMA2", "HMUL2", "HADD2"))
_IMAD = frozenset(("IMAD", "IDP", "IDP4A", "IMUL", "VIADD"))
_WIDE_PRODUCT = re.compile(r"\.(HI|WIDE)\b")
_XU = frozenset(
    ("MUFU", "I2F", "F2I", "F2F", "FRND", "POPC", "FLO", "BREV", "I2I", "REDUX", "CREDUX", "MATCH")
)
_TENSOR = frozenset(("HMMA", "IMMA", "BMMA", "QMMA", "OMMA", "DMMA"))
_TENSOR_MEMORY = frozenset(("LDTM", "STTM", "UTCCP"))
"""They move 32 words a cycle at most, as many as the registers of a scheduler take or give."""
_NONE = frozenset(("NOP", "BRA", "EXIT", "BSSY", "BSYNC", "WARPSYNC", "RET", "CALL", "BREAK"))
GLOBAL_LOADS = frozenset(("LDG", "LD", "ATOMG", "ATOM"))
_GLOBAL_STORES = frozenset(("STG", "ST", "RED", "REDG"))
_PAST_L1 = re.compile(r"^ATOM|\.STRONG\.(GPU|SYS)|\.BYPASS|\.(NA|MMIO)\b")
_SHARED = frozenset(("LDS", "STS", "LDSM", "STSM", "ATOMS"))
_SUMMING = frozenset(("REDUX", "CREDUX", "VOTE", "VOTEU"))
"""With one of them, one lane updates a word for its warp."""
_SLOW_READS = frozenset(("S2R", "S2UR", "CS2R", "LDC", "LDCU", "ULDC", "R2UR"))
_SLOW_READ = 2
"""Cycles that a read of a constant or of a special register keeps its pipe busy."""
_BARRIER = 8
"""Cycles until a scheduler's next warp can arrive at a barrier: that takes 13 cycles and 2 for each
warp of an SM (H100, 2 to 32 warps, 2026-11-28)."""
_FENCE = 40
"""Cycles until a scheduler's next warp can begin a fence: 16 warps take 250 longer than one, 64
some 500 (H100, 2026-11-28)."""
_GROUPS = re.compile(r"SB\d, (0x[0-9a-f]+)")
_WARP = 32
_WORD_BYTES = 4
_WIDTH = re.compile(r"\.(256|128|64)\b")
_MIXED = 0.05
"""Largest share of the requests of a generic access that goes to another memory than the rest."""
_BULK = frozenset(("UBLKCP", "UTMALDG", "UTMASTG", "UBLKPF"))
_DEFAULT_LATENCY = 24
"""Cycles of a shuffle, a special register or a conversion: 20 to 30 in every measurement (Jia et
al. 2018, table 4.1; Luo et al., arXiv 2402.13499, for Hopper)."""


class Access(Record):
    """The memory accesses of a statement over a launch."""

    requests: int = 0
    """Requests of warps."""
    memory: float = 0.0
    """Bytes that come from memory."""
    l2: float = 0.0
    """Bytes that come from the L2."""
    memory_requests: float = 0.0
    """Requests that fetch bytes from memory."""
    l2_requests: float = 0.0
    """Requests that fetch bytes from the L2."""
    again: float = 0.0
    """The share of `l2` that the same thread block has fetched before."""
    common: float = 1.0
    """The share of thread blocks that want a sector."""
    cold: float = 0.0
    """Requests for what other thread blocks fetch from memory at the same time, if all run at
    once."""
    asked: int = 0
    """Bytes of all requests, in whole sectors."""
    lines: float = 1.0
    """Lines of 128 bytes in each request."""
    l1_passes: float = 0.0
    """Passes of L1 in each request."""
    sharers: float = 1.0
    """Warps of a thread block that ask for the same at the same time."""
    turns: float = 1.0
    """Turns of each request of atomics on shared memory, as lanes meet at one word."""
    local_lines: float = 0.0
    """Lines of local memory in each request."""
    shared_requests: int = 0
    passes: int = 0
    """Passes of shared memory, all together."""
    copied: int = 0
    """Bytes that the copy engine moves."""
    copied_fresh: float = 0.0
    """Bytes that come from memory for it."""


def access(asked: Asked, spread: float, ctas: int) -> Access:
    """Return the accesses of a statement of a launch. spread: see `Work`. ctas: of the launch."""
    if asked.copied:
        fresh = asked.fresh * SECTOR_BYTES * spread
        return Access(requests=asked.requests, copied=asked.copied, copied_fresh=fresh)
    sampled = asked.sampled or Sampled(asked.sectors / 4 / max(asked.requests, 1), 1.0, 1.0)
    first = max(sampled.first * asked.sectors, asked.fresh)
    fetching = sampled.first_requests * asked.requests
    return Access(
        requests=asked.requests,
        memory=asked.fresh * SECTOR_BYTES * spread,
        l2=(first - asked.fresh) * SECTOR_BYTES,
        memory_requests=fetching * asked.fresh / first if first else 0.0,
        l2_requests=fetching * (1 - asked.fresh / first) if first else 0.0,
        common=min(1.0, first / (asked.fresh * ctas)) if asked.fresh else 1.0,
        cold=fetching * min(1.0, asked.fresh * ctas / first) if first else 0.0,
        again=min(1.0, sampled.again * asked.sectors / max(first - asked.fresh, 1.0)),
        asked=asked.sectors * SECTOR_BYTES,
        lines=sampled.lines,
        l1_passes=sampled.passes,
        sharers=sampled.sharers,
        turns=max(1.0, asked.turns / max(asked.shared_requests, 1)),
        local_lines=asked.local_lines / max(asked.requests, 1),
        shared_requests=asked.shared_requests,
        passes=asked.passes,
    )


class Use(Record):
    """The resources that an instruction uses, in the order of the first parameters of
    `multiprocessor.simulate`."""

    kind: int
    pipe: int
    interval: float
    """Cycles for which it keeps its pipe busy."""
    latency: int = 0
    """Cycles until its result is available; for AWAIT, how many groups of copies may still be in
    flight."""
    own: float = 0.0
    """Average bytes that an execution fetches from memory."""
    shared: float = 0.0
    """Average bytes that an execution fetches from the L2."""
    busy: float = 0.0
    """Cycles of the LSU, or of the copy engine."""
    own_rate: float = 1.0
    """Share of executions that fetch bytes from memory."""
    shared_rate: float = 1.0
    """Share of executions that fetch bytes from the L2."""
    issue: float = 1.0
    """Cycles for which it keeps its scheduler busy."""
    stall: int = 1
    """See `sass.Instruction`."""
    waits: int = 0
    """See `sass.Instruction`."""
    sets: int = -1
    """See `sass.Instruction`; -1 for no scoreboard."""
    reads: int = -1
    """See `sass.Instruction`; -1 for no scoreboard."""
    sharers: float = 1.0
    """Executions, one after the other, that wait for what the first of them fetches."""
    cold: float = 0.0
    """Share of executions for what other thread blocks fetch from memory at the same time."""


def columns(uses: list[Use]) -> list[Array]:
    """Return an array for each field of `Use`."""
    kinds = get_type_hints(Use).items()
    return [np.array([getattr(use, name) for use in uses], kind) for name, kind in kinds]


def machine(
    gpu: Gpu,
    code: Code,
    accesses: dict[int, Access],
    executions: dict[int, float],
    resident: int,
    local_fits: bool = True,
) -> list[Use]:
    """Return the use of each instruction.

    accesses: by statement, over a launch. executions: how often the launch executes the memory
    instructions of each statement. resident: thread blocks that an SM holds at a time. local_fits:
    whether L1 holds the local memory of an SM's threads.
    """
    uses = []
    summing = {each.statement for each in code.instructions if each.name in _SUMMING}
    for each in code.instructions:
        asked = accesses.get(each.statement, Access())
        of_one_lane = summing and each.guarded and "[UR" in each.text
        if each.statement in summing or of_one_lane:
            asked = replace(asked, turns=1.0)
        use = _use(gpu, each, asked, executions.get(each.statement, 1.0), resident)
        if each.name == "LDL" and local_fits:
            use = replace(use, shared=0.0)
        sets, reads = (-1 if b == NO_SCOREBOARD else b for b in (each.sets, each.reads))
        issue = gpu.unpack_issue if each.name == "F2FP" and "UNPACK" in each.opcode else 1.0
        fence = gpu.fence if each.name == "MEMBAR" and ".CTA" not in each.opcode else 1
        stall, waits = max(fence, each.stall), each.waits
        uses.append(replace(use, issue=issue, stall=stall, waits=waits, sets=sets, reads=reads))
    return uses


def _words(each: Instruction) -> float:
    """Return the number of 32-bit words that an access moves for a thread."""
    wide = _WIDTH.search(each.opcode)
    return int(wide[1]) / 32 if wide else 1.0


def _use(gpu: Gpu, each: Instruction, access: Access, executions: float, resident: int) -> Use:
    name = each.name
    words = _words(each)
    asked = access.shared_requests, access.requests
    if name in ("LD", "ST") and min(asked) > _MIXED * sum(asked):
        raise NoPrediction("a generic access goes to shared memory here and elsewhere there")
    generic = name in ("LD", "ST") and access.shared_requests > access.requests
    if name == "QSPC" and access.shared_requests:
        raise NoPrediction("atomics on shared memory have generic addresses")
    if name in _SHARED or generic:
        passes = max(access.passes / executions, words / 2 if access.passes else 0.0)
        # Atomics that no machine instruction does are a load and a compare-and-swap in each turn.
        tries = access.turns if name == "LDS" or ".CAS" in each.opcode else 1.0
        turns = access.turns if name == "ATOMS" and ".POPC" not in each.opcode else tries
        return Use(SHARED, LSU, 2, round(tries * gpu.shared_latency), busy=turns * passes)
    if name in GLOBAL_LOADS or name in _GLOBAL_STORES or name == "LDGSTS":
        return _global_use(gpu, each, access, executions, resident)
    if name in ("LDL", "STL"):
        # L1 keeps what it writes through to L2 (Khairy et al., Accel-Sim, ISCA 2020: Volta's L1).
        lines = max(words, access.local_lines)
        moved = max(_WARP * _WORD_BYTES * words, SECTOR_BYTES * lines)
        busy = max(words, lines / gpu.l1_lines)
        if name == "LDL":
            return Use(LOAD, LSU, 2, gpu.l1_latency, shared=moved, busy=busy)
        stored = gpu.l2_stores * max(moved, gpu.l2_line * lines)
        return Use(STORE, LSU, 2, gpu.l1_latency, shared=stored, busy=busy)
    if name == "SHFL":
        return Use(SHARED, LSU, 2, _DEFAULT_LATENCY, busy=1.0)
    if name == "UCGABAR_WAIT":
        return Use(BARRIER, ISSUE, 1, gpu.cluster_barrier, shared=BARRIERS - 1)
    if name == "BAR":
        return _barrier_use(gpu, each)
    if name == "LDC" and access.passes and access.requests:  # else of shared memory
        cycles = _SLOW_READ * access.passes / access.requests
        return Use(LOAD, LSU, 2, _DEFAULT_LATENCY, busy=cycles)
    if name in ("LDGDEPBAR", "UTMACMDFLUSH"):
        return Use(COMMIT, ISSUE, 1)
    if name == "DEPBAR" and ".LE" in each.opcode:
        groups = _GROUPS.search(each.text)
        return Use(AWAIT, ISSUE, 1, int(groups[1], 16) if groups else 0)
    if name == "STAS" or each.opcode == "UBLKCP.S.S":
        what = "st.async" if name == "STAS" else "a copy between shared memories"
        raise NoPrediction(f"how long {what} takes was not measured")
    if name in _BULK:
        busy = gpu.bulk * access.requests / executions
        fresh = access.copied_fresh / executions
        if name == "UTMASTG" or ".G.S" in each.opcode:
            own, rest = _stored(gpu, fresh, access.copied / executions)
            return Use(STORE, UNIFORM, 2, own=own, shared=rest, busy=busy)
        rest = max(access.copied - access.copied_fresh, 0.0) / executions
        return Use(BULK, UNIFORM, 2, gpu.l1_latency, own=fresh, shared=rest, busy=busy)
    if name in ("SYNCS", "ARRIVES") and access.passes and "CCTL" not in each.opcode:
        if "PHASECHK" in each.opcode or name == "ARRIVES":
            raise NoPrediction("lanes of a warp wait for mbarriers that lie in one bank")
        busy = access.passes / access.shared_requests
        return Use(SHARED, LSU, 2, gpu.shared_latency, busy=busy)
    if name == "ARRIVES":  # when the warp's copies have come
        return Use(BULK, UNIFORM, 2)
    if name == "SYNCS" and "PHASECHK" in each.opcode:
        return Use(BULK_WAIT, UNIFORM, 2, _DEFAULT_LATENCY)
    if name == "MEMBAR":
        return Use(VARIABLE, UNIFORM, _FENCE)
    pipe, interval = _pipe(gpu, each)
    return Use(VARIABLE, pipe, interval, _DEFAULT_LATENCY)


def _barrier_use(gpu: Gpu, each: Instruction) -> Use:
    """Return the use of a barrier, with its number as `shared` and its warps as `own`, 0 for all.
    Raises NoPrediction if registers hold these."""
    operands = each.text.partition(each.opcode)[2]
    if re.search(r"\bU?R\d", operands):
        raise NoPrediction("a register holds the number of a barrier, or of its threads")
    number, threads, *_ = [int(n, 16) for n in re.findall(r"\b0x([0-9a-f]+)", operands)] + [0, 0]
    kind = ARRIVAL if "ARV" in each.opcode else BARRIER
    return Use(kind, UNIFORM, _BARRIER, gpu.barrier, own=threads // _WARP, shared=number)


def _global_use(
    gpu: Gpu, each: Instruction, access: Access, executions: float, resident: int
) -> Use:
    """Return the use of an access to global memory.

    Thread blocks of an SM share what they fetch, but not what L1 has lost since, nor what does not
    stay there. Stores, atomics, loads that allocate nothing in L1 and those that may see other SMs'
    writes go to L2 each time.
    """
    past_l1 = _PAST_L1.search(each.opcode)
    # What one of the resident thread blocks wants, others want with the same chance.
    once = (1 - (1 - access.common) ** resident) / (resident * access.common)
    part = 1.0 if past_l1 else once + (1 - once) * access.again
    if past_l1 or each.name in _GLOBAL_STORES:
        requests = max(access.requests - access.memory_requests, 0.0)
        l2 = max(access.asked - access.memory, 0.0)
        access = replace(access, l2=l2, l2_requests=requests)
    passes = max(_words(each), access.l1_passes, (access.lines + access.local_lines) / gpu.l1_lines)
    busy = passes * min(1.0, access.requests / executions)
    if each.name in ("LDGSTS", "ATOM"):  # ATOM: also on shared memory of a cluster
        busy = max(busy, access.passes / executions)
    if each.name in _GLOBAL_STORES:
        written = max(access.memory + access.l2, gpu.l2_line * access.lines * access.requests)
        own, rest = _stored(gpu, access.memory / executions, written / executions)
        rate = _rate(access.memory_requests / executions)
        return Use(STORE, LSU, 2, gpu.l1_latency, own, rest, busy, own_rate=rate)
    # A lone sector of a line takes the way from the L2 as long as two.
    wide = max(1.0, gpu.l2_line * access.lines * access.requests / max(access.asked, 1))
    return Use(
        kind=ASYNC if each.name == "LDGSTS" else LOAD,
        pipe=LSU,
        interval=2,
        latency=gpu.atomic_latency if each.name.startswith("ATOM") else gpu.l1_latency,
        own=access.memory / executions,
        shared=access.l2 * part * wide / executions,
        busy=busy,
        own_rate=_rate(access.memory_requests / executions),
        shared_rate=_rate(access.l2_requests * part / executions),
        sharers=1.0 if past_l1 else access.sharers,
        cold=0.0 if past_l1 else min(1.0, access.cold / executions),
    )


def _stored(gpu: Gpu, fresh: float, nbytes: float) -> tuple[float, float]:
    """Return what an execution that stores takes of memory and, beside that, of the way to L2, in
    bytes that are loaded meanwhile. fresh: bytes of all that nothing had touched before."""
    own = gpu.memory_stores * fresh
    return own, gpu.l2_stores * nbytes - own


def _rate(rate: float) -> float:
    """Return the rate limited to 1; 1 if it is 0."""
    return min(1.0, rate) if rate > 0 else 1.0


def _pipe(gpu: Gpu, each: Instruction) -> tuple[int, float]:
    """Return the pipe of its scheduler that an instruction keeps busy, and for how many cycles."""
    name = each.name
    if name in _NONE:
        return ISSUE, 1
    if name in _FMA:
        return EITHER, gpu.fma
    if name in _PACKED:
        return BOTH, gpu.packed
    if name == "HADD2" and ".F32" in each.opcode:
        return HEAVY, gpu.widen
    if name in _HALF:
        return (BOTH if gpu.half_takes_both else EITHER), gpu.half
    if name in _IMAD:
        return HEAVY, gpu.imad * (2 if _WIDE_PRODUCT.search(each.opcode) else 1)
    if name == "F2FP" and "UNPACK" in each.opcode:
        return ALU, gpu.unpack
    if name in _XU:
        return XU, gpu.xu
    if name in _TENSOR:
        short = ".1688." in each.opcode and "TF32" not in each.opcode
        return TENSOR, gpu.tensor / (2 if short else 1)
    if name in _TENSOR_MEMORY:
        usual = ".128dp256bit" if name == "UTCCP" else ".32dp32bit"
        (lanes, bits), *_ = re.findall(r"(\d+)dp(\d+)bit", each.opcode + usual)
        times, *_ = re.findall(r"\.x(\d+)", each.opcode + ".x1")
        return TENSOR, int(lanes) * int(bits) * int(times) / 1024
    if name in _SLOW_READS or name.startswith("U"):
        return UNIFORM, _SLOW_READ
    return ALU, gpu.alu
