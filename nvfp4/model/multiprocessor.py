"""One multiprocessor, instruction by instruction, until its thread blocks have ended.

Four schedulers issue an instruction a cycle each, the one that could go first. A warp waits for the
cycles and the scoreboards that its code names, or for a pipe. A load is answered by L1,
L2 or memory; memory takes the time measured for the same number of bytes in flight.
"""

import numpy as np

from nvfp4.emulator.loops import loop
from nvfp4.model import machine

(
    ISSUED, WAITS_PIPE, WAITS_FIXED, WAITS_MEMORY, WAITS_BANDWIDTH, WAITS_L2, WAITS_L1,
    WAITS_SHARED, WAITS_BARRIER, WAITS_START,
) = range(10)  # fmt: skip
"""States of a scheduler in a cycle: it issues, or the reason why it does not."""

REASONS = (
    "issue", "pipe", "latency", "memory_latency", "memory_bandwidth", "l2", "l1", "shared",
    "barrier", "start",
)  # fmt: skip

_BACKLOG = 32
"""Cycles of work that the load and store unit accepts before it stops the schedulers."""
_GROUPS = 16
_POLL = 40
_IN_FLIGHT = 1 << 14
_BULKS = 1 << 12
_LONGEST = 50_000_000


@loop
def memory_cycles(bytes_in_flight, curve_bytes, curve_cycles):  # type: ignore[no-untyped-def]
    """Return the cycles that memory takes with `bytes_in_flight` on every SM; beyond the last point
    of the curve the bandwidth is constant."""
    last = curve_bytes.shape[0] - 1
    if bytes_in_flight >= curve_bytes[last]:
        return curve_cycles[last] * bytes_in_flight / curve_bytes[last]
    for i in range(last):
        if bytes_in_flight < curve_bytes[i + 1]:
            part = (bytes_in_flight - curve_bytes[i]) / (curve_bytes[i + 1] - curve_bytes[i])
            return curve_cycles[i] + part * (curve_cycles[i + 1] - curve_cycles[i])
    return curve_cycles[last]


@loop
def _wanted(waits, share):  # type: ignore[no-untyped-def]
    """Return how many copies must have come after this many waits, each for `share` of them: for at
    least one more than before where some waits are for fewer."""
    if share == np.floor(share):
        return np.int64(waits * share)
    return np.int64(np.floor((waits - 1) * share)) + 1


@loop
def simulate(  # type: ignore[no-untyped-def]
    kind, pipe, interval, latency, own, shared, busy, own_rate, shared_rate, issue, stall, waits,
    sets, reads, sharers, cold, trace, trace_start, of_warp, of_cta, resident, spacing, cta_start,
    load_share, curve_bytes, curve_cycles, l2_latency, port_bytes, branch,
):  # fmt: skip
    """Simulate a multiprocessor. Return the cycles (negative if warps wait forever), cycles by
    instruction and by reason, and the bytes fetched from memory.

    trace: numbers of the executed instructions in order; trace i starts at trace_start[i]. of_warp:
    the trace of each warp for each kind of CTA. of_cta: the kinds of the CTAs that this SM runs,
    `resident` of them at a time; they start at least `spacing` cycles apart. load_share: the ratio
    of the memory requests of other SMs to those of this one.
    """
    warps = of_warp.shape[1]
    ctas = of_cta.shape[0]
    slots = resident * warps
    ready = np.full(slots, 1e18)
    at = np.zeros(slots, np.int64)
    end = np.zeros(slots, np.int64)
    alive = np.zeros(slots, np.bool_)
    parked = np.zeros(slots, np.int64)  # one more than the number of the barrier
    arrived = np.zeros((resident, machine.BARRIERS), np.int64)
    wanted_at = np.zeros((resident, machine.BARRIERS), np.int64)
    board = np.zeros((slots, 6))
    setter = np.full((slots, 6), -1)
    board_why = np.zeros((slots, 6), np.int64)
    board_fair = np.ones((slots, 6))
    culprit = np.full(slots, -1)
    why = np.full(slots, WAITS_START)
    fair = np.ones(slots)
    open_copies = np.zeros(slots)
    groups = np.zeros((slots, _GROUPS))
    committed = np.zeros(slots, np.int64)
    waited = np.zeros(slots, np.int64)
    bulk_done = np.zeros((resident, _BULKS))
    bulks = np.zeros(resident, np.int64)
    by_code = np.zeros(kind.shape[0])
    # The first request misses.
    misses = 1.0 - own_rate
    others = 1.0 - shared_rate
    # When what one warp has fetched for others is there, and how many of them will still ask.
    filled = np.zeros((kind.shape[0], resident))
    owed = np.zeros((kind.shape[0], resident))
    # CTAs that the SM began with, and how far each is in what they and other SMs fetch at the same
    # time: the first waits for memory, and others with it.
    early = np.ones(resident, np.bool_)
    reached = np.ones((kind.shape[0], resident)) - cold.reshape(-1, 1)
    front = np.zeros(kind.shape[0])
    arrives_at = np.zeros(kind.shape[0])
    by_reason = np.zeros(10)
    sched_free = np.zeros(4)
    pipe_free = np.zeros((4, 16))
    best = np.full(4, -1)
    best_time = np.full(4, 1e18)
    flight_done = np.zeros(_IN_FLIGHT)
    flight_bytes = np.zeros(_IN_FLIGHT)
    head = 0
    tail = 0
    in_flight = 0.0
    fetched = 0.0
    stored = 0.0
    lsu_free = 0.0
    port_free = 0.0
    started = min(ctas, resident)
    unfinished = np.zeros(resident, np.int64)
    total_bulks = np.zeros(of_warp.shape[0], np.int64)
    bulks_a_wait = np.ones(of_warp.shape[0])
    issues = np.zeros(of_warp.shape, np.bool_)
    # What a CTA copies is shared out among the waits of the warp that waits most often.
    for c in np.unique(of_cta):
        total_waits = 1
        for w in range(warps):
            of_one = 0
            for k in range(trace_start[of_warp[c, w]], trace_start[of_warp[c, w] + 1]):
                total_bulks[c] += kind[trace[k]] == machine.BULK
                issues[c, w] |= kind[trace[k]] == machine.BULK
                of_one += kind[trace[k]] == machine.BULK_WAIT
            total_waits = max(total_waits, of_one)
        bulks_a_wait[c] = max(1.0, total_bulks[c] / total_waits)
    kind_of = of_cta[:resident].copy()
    # The number that an SM gives a warp decides its scheduler (G. Smith, NVIDIA's forum, 174892).
    # Equal warps of CTAs side by side are spread: kernels with one idle or one busy warp in eight
    # or four take as long on a B200 as with schedulers equally busy.
    again = 4 if warps % 2 else 2 if warps % 4 else 1
    of_scheduler = np.zeros((4, slots), np.int64)
    count = np.zeros(4, np.int64)
    for slot in range(slots):
        s = (slot + slot // warps // again) % 4
        of_scheduler[s, count[s]] = slot
        count[s] += 1
    for cta in range(started):
        unfinished[cta] = warps
        for w in range(warps):
            slot = cta * warps + w
            at[slot] = trace_start[of_warp[of_cta[cta], w]]
            end[slot] = trace_start[of_warp[of_cta[cta], w] + 1]
            alive[slot] = True
            ready[slot] = cta * spacing
    last_start = (started - 1) * spacing
    stale = 15
    finish = 0.0
    while True:
        for s in range(4):
            if not stale >> s & 1:
                continue
            best[s] = -1
            best_time[s] = 1e18
            for n in range(count[s]):
                slot = of_scheduler[s, n]
                if not alive[slot] or parked[slot] > 0:
                    continue
                t = max(ready[slot], sched_free[s])
                p = pipe[trace[at[slot]]]
                if p == machine.EITHER:
                    t = max(t, min(pipe_free[s, machine.EITHER], pipe_free[s, machine.BOTH]))
                elif p == machine.BOTH:
                    t = max(t, pipe_free[s, machine.EITHER], pipe_free[s, machine.BOTH])
                elif p == machine.HEAVY:
                    t = max(t, pipe_free[s, machine.BOTH])
                elif p:
                    t = max(t, pipe_free[s, p])
                if p == machine.LSU or kind[trace[at[slot]]] == machine.STORE:
                    t = max(t, lsu_free - _BACKLOG)
                if t < best_time[s]:
                    best_time[s] = t
                    best[s] = slot
        stale = 0
        s = 0
        for other in range(1, 4):
            if best_time[other] < best_time[s]:
                s = other
        slot = best[s]
        if slot < 0 or best_time[s] > _LONGEST:
            break
        t = best_time[s]
        cta = slot // warps
        stale |= 1 << s
        i = trace[at[slot]]
        k = kind[i]
        if k == machine.BULK_WAIT:
            wanted = _wanted(waited[slot] + 1, bulks_a_wait[kind_of[cta]])
            # A trace has turns without a copy among those with one, where a loop has them last.
            issuer = issues[kind_of[cta], slot % warps] and bulks[cta] > 0
            if not issuer and bulks[cta] < wanted <= total_bulks[kind_of[cta]]:
                ready[slot] = t + _POLL
                continue
        # Attribute the cycles since this scheduler's last instruction.
        gap = t - sched_free[s]
        if gap > 0:
            late = max(0.0, ready[slot] - sched_free[s])
            late = min(late, gap)
            who = culprit[slot] if culprit[slot] >= 0 else i
            if why[slot] == WAITS_MEMORY:
                by_reason[WAITS_MEMORY] += late * fair[slot]
                by_reason[WAITS_BANDWIDTH] += late * (1.0 - fair[slot])
            else:
                by_reason[why[slot]] += late
            by_code[who] += late
            if k == machine.SHARED:
                by_reason[WAITS_SHARED] += gap - late
            elif k == machine.BARRIER:
                by_reason[WAITS_BARRIER] += gap - late
            else:
                by_reason[WAITS_L1 if pipe[i] == machine.LSU else WAITS_PIPE] += gap - late
            by_code[i] += gap - late
        by_reason[ISSUED] += 1
        by_code[i] += 1
        sched_free[s] = t + issue[i]
        p = pipe[i]
        if p == machine.EITHER:
            # The light half first: some can go to the heavy one only.
            p = machine.EITHER if pipe_free[s, machine.EITHER] <= t else machine.BOTH
            pipe_free[s, p] = t + interval[i]
        elif p == machine.BOTH:
            pipe_free[s, machine.EITHER] = t + interval[i]
            pipe_free[s, machine.BOTH] = t + interval[i]
        elif p == machine.HEAVY:
            pipe_free[s, machine.BOTH] = t + interval[i]
        elif p:
            pipe_free[s, p] = t + interval[i]
        done = t + latency[i]
        reason = WAITS_FIXED
        share = 1.0
        if k in (machine.LOAD, machine.ASYNC, machine.STORE, machine.SHARED, machine.BULK):
            begin = max(t, lsu_free)
            if p == machine.LSU:
                lsu_free = begin + busy[i]
            done = begin + busy[i] - 1 + latency[i]
            reason = WAITS_SHARED if k == machine.SHARED else WAITS_L1
            # Of requests that share sectors only some have to fetch them, and then all of them;
            # others wait with them.
            first = owed[i, cta] < 1
            if first:
                owed[i, cta] += sharers[i]
            owed[i, cta] -= 1
            asking = sharers[i] if first else 0.0
            misses[i] += own_rate[i] * asking
            asked = 0.0
            if first and own[i] > 0 and misses[i] >= 1:
                misses[i] -= 1
                asked = own[i] / own_rate[i]
            others[i] += shared_rate[i] * asking
            moved = asked
            if first and shared[i] > 0 and others[i] >= 1:
                others[i] -= 1
                moved += shared[i] / shared_rate[i]
            if moved > 0:
                engine = 0.0 if p == machine.LSU else busy[i]
                port_free = max(port_free, begin) + max(moved / port_bytes, engine)
                if k == machine.STORE:
                    lsu_free = max(lsu_free, port_free - _BACKLOG)
                else:
                    done = max(done, port_free + l2_latency)
                    reason = WAITS_L2
            if asked > 0:
                while head != tail and flight_done[head] <= t:
                    in_flight -= flight_bytes[head]
                    head = (head + 1) % _IN_FLIGHT
                in_flight += asked
                loaded = in_flight * load_share
                cycles = memory_cycles(loaded, curve_bytes, curve_cycles)
                share = min(1.0, curve_cycles[0] / cycles)
                if k == machine.STORE:  # nothing but the end waits for it, and not for its latency
                    stored = max(stored, begin + cycles - curve_cycles[0])
                else:
                    fetched += asked
                    done = max(done, begin + cycles)
                    reason = WAITS_MEMORY
                if (tail + 1) % _IN_FLIGHT != head:
                    flight_done[tail] = begin + cycles
                    flight_bytes[tail] = asked
                    tail = (tail + 1) % _IN_FLIGHT
                else:
                    in_flight -= asked
            before = np.floor(reached[i, cta])
            reached[i, cta] += cold[i] * asking
            if early[cta] and reached[i, cta] >= before + 1:
                if reached[i, cta] >= front[i] + 1:
                    front[i] = np.floor(reached[i, cta])
                    loaded = in_flight * load_share
                    arrives_at[i] = begin + memory_cycles(loaded, curve_bytes, curve_cycles)
                if reached[i, cta] >= front[i]:
                    done = max(done, arrives_at[i])
            if first:
                filled[i, cta] = done
            elif filled[i, cta] > done:
                done = filled[i, cta]
                reason = WAITS_L2
        # On an H200, 30 bulk stores in a row take as long by wait_group as by wait_group.read.
        if k == machine.ASYNC or (k == machine.STORE and p == machine.UNIFORM):
            open_copies[slot] = max(open_copies[slot], done)
        elif k == machine.COMMIT:
            groups[slot, committed[slot] % _GROUPS] = open_copies[slot]
            committed[slot] += 1
        elif k == machine.BULK:
            bulk_done[cta, bulks[cta] % _BULKS] = max(done, open_copies[slot])
            bulks[cta] += 1
        if sets[i] >= 0:
            b = sets[i]
            if done >= board[slot, b]:
                board[slot, b] = done
                setter[slot, b] = i
                board_why[slot, b] = reason
                board_fair[slot, b] = share
        if reads[i] >= 0:
            b = reads[i]
            released = t + 12.0 + max(0.0, lsu_free - t) if p == machine.LSU else t + 12.0
            if released >= board[slot, b]:
                board[slot, b] = released
                setter[slot, b] = i
                board_why[slot, b] = WAITS_L1 if p == machine.LSU else WAITS_FIXED
        at[slot] += 1
        later = t + stall[i]
        why[slot] = WAITS_FIXED
        culprit[slot] = i
        fair[slot] = 1.0
        if k == machine.AWAIT:
            g = committed[slot] - 1 - latency[i]
            if g >= 0 and groups[slot, g % _GROUPS] > later:
                later = groups[slot, g % _GROUPS]
                why[slot] = WAITS_MEMORY
        elif k == machine.BULK_WAIT:
            waited[slot] += 1
            g = min(_wanted(waited[slot], bulks_a_wait[kind_of[cta]]), bulks[cta]) - 1
            if g >= 0 and bulk_done[cta, g % _BULKS] > later:
                later = bulk_done[cta, g % _BULKS]
                why[slot] = WAITS_MEMORY
        if at[slot] >= end[slot]:
            alive[slot] = False
            finish = max(finish, later)
            unfinished[cta] -= 1
            if unfinished[cta] == 0 and started < ctas:
                begin = max(later + cta_start, last_start + spacing)
                last_start = begin
                new_kind = kind_of[cta] = of_cta[started]
                started += 1
                unfinished[cta] = warps
                bulks[cta] = 0
                arrived[cta] = 0
                early[cta] = False
                stale = 15
                for w in range(warps):
                    other = cta * warps + w
                    at[other] = trace_start[of_warp[new_kind, w]]
                    end[other] = trace_start[of_warp[new_kind, w] + 1]
                    alive[other] = True
                    parked[other] = 0
                    ready[other] = begin
                    why[other] = WAITS_START
                    culprit[other] = -1
                    waited[other] = 0
                    committed[other] = 0
                    open_copies[other] = 0.0
                    board[other] = 0.0
        else:
            following = trace[at[slot]]
            if following != i + 1:
                later += branch
            for b in range(6):
                if waits[following] >> b & 1 and board[slot, b] > later:
                    later = board[slot, b]
                    why[slot] = board_why[slot, b]
                    culprit[slot] = setter[slot, b]
                    fair[slot] = board_fair[slot, b]
            if k == machine.BARRIER:
                parked[slot] = 1 + shared[i]
                why[slot] = WAITS_BARRIER
                culprit[slot] = i
            ready[slot] = later
        arrives = k == machine.BARRIER or k == machine.ARRIVAL
        if arrives or not alive[slot]:
            if arrives:
                b = np.int64(shared[i])
                arrived[cta, b] += 1
                wanted_at[cta, b] = np.int64(own[i])
            living = alive[cta * warps : (cta + 1) * warps].sum()
            for b in range(machine.BARRIERS):
                wanted = wanted_at[cta, b] if wanted_at[cta, b] else living
                if living == 0 or arrived[cta, b] == 0 or arrived[cta, b] < wanted:
                    continue
                arrived[cta, b] = 0
                for other in range(cta * warps, (cta + 1) * warps):
                    if alive[other] and parked[other] == b + 1:
                        parked[other] = 0
                        ready[other] = max(ready[other], t + latency[i] * arrives)
                stale = 15
    finish = -1.0 if alive.any() else max(finish, port_free, stored)
    # A scheduler without warps is not counted: the others account for all cycles.
    whole = max(by_reason.sum(), 1.0)
    return finish, by_code * finish / whole, by_reason * finish / whole, fetched
