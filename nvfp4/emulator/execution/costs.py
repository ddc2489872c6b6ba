"""A launch run for its costs: some of its CTAs, every instruction counted by line of source."""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from nvfp4.emulator.compiler.codegen import CompiledKernel
from nvfp4.emulator.cost import ADDED, KernelCost
from nvfp4.emulator.execution.experiment import restore
from nvfp4.emulator.execution.launch import is_starved, run_ctas, state_before, statements
from nvfp4.emulator.execution.module import LoadedModule
from nvfp4.emulator.ptx.flow import Block
from nvfp4.emulator.ptx.syntax import SHARED_BASE, Instruction
from nvfp4.emulator.ptx.types import Array
from nvfp4.emulator.state.batch import LaunchState
from nvfp4.emulator.state.tally import SiteTally, Tally, Touched, place_of
from nvfp4.records.costs import AccessCost, LineCost, ReadCost
from nvfp4.records.launch import Launch
from nvfp4.records.source import shown
from nvfp4.records.texts import short_name

Place = tuple[str | None, int | None]

_Kind = tuple[str, int, int | None]
"""Opcode, bytes at each address, bytes between the addresses of neighbouring threads."""

_NOTICEABLE_IDLE = 0.02
"""Branches that leave a smaller share of a block's lanes idle than this are not charged for it."""

_FARTHEST = 64
"""Blocks that are searched for the branch that has divided a warp."""


def cost_of(
    module: LoadedModule, asked: Launch, most_instructions: int, tries: bool, seed: int
) -> KernelCost:
    """Run CTAs spread over the grid until `most_instructions` warp instructions have been executed.
    tries: leave memory as it was. seed: decides which CTAs come first.

    Batches run to their end. A launch in which CTAs wait for each other cannot be sampled and runs
    as a whole. Raises EmulatorError.
    """
    compiled = module.kernel(asked.kernel, check=False)

    def sample(most: int | None, together: bool = False) -> tuple[Tally, LaunchState, Array, int]:
        tally = Tally(len(compiled.blocks))
        state = state_before(module, compiled, asked, tally=tally)
        return tally, state, *run_ctas(state, compiled, together, most, seed)

    tally, state, runs, ran = sample(most_instructions)
    if state.fault is not None:
        restore(state.memory.kept)
        tally, state, runs, ran = sample(None)
    if is_starved(state):
        restore(state.memory.kept)
        tally, state, runs, ran = sample(None, together=True)
    if tries:
        restore(state.memory.kept)
    if state.fault is not None:
        raise state.fault
    x, y, z = asked.grid
    builder = _Lines(compiled, runs, tally, x * y * z / ran)
    lines = sorted(builder.lines.values(), key=lambda each: (each.file or "", each.line or 0))
    return KernelCost(
        kernel=short_name(asked.kernel), entry=asked.kernel, grid=asked.grid, block=asked.block,
        shared_bytes=state.shared_bytes - SHARED_BASE, local_bytes=compiled.program.local_bytes,
        ctas_run=ran, ctas_total=x * y * z, launches=1, lines=lines, ptx=asked.ptx,
        instructions=sum(each.instructions for each in lines), ptx_lines=builder.ptx_lines,
        work=state.work.work(statements(compiled)),
    )  # fmt: skip


class _Lines:
    """The costs of a run by line. scale: ratio of all CTAs to those that ran."""

    def __init__(self, compiled: CompiledKernel, runs: Array, tally: Tally, scale: float) -> None:
        self.code = compiled.program.code
        self.blocks = compiled.blocks
        self.runs = runs
        self.tally = tally
        self.scale = scale
        self.lines: dict[Place, LineCost] = {}
        self.ptx_lines: dict[int, tuple[int, str | None, int | None]] = {}
        self._count()
        self._access()
        self._read()
        self._idle()

    def _line(self, instruction: Instruction) -> LineCost:
        place = _place(instruction)
        return self.lines.setdefault(place, LineCost(*place))

    def _scaled(self, count: float) -> int:
        return round(count * self.scale)

    def _count(self) -> None:
        for block, warps, lanes in zip(self.blocks, self.runs, self.tally.lanes, strict=True):
            for instruction in block.code:
                line = self._line(instruction)
                user = instruction.user
                outer = user.caller.users() if user and user.caller else None
                own = outer if user and outer and outer.file == user.file else None
                if own is not None and own.line not in line.callers:
                    line.callers.append(own.line)
                count = self._scaled(int(warps))
                line.instructions += count
                line.lanes += self._scaled(int(lanes))
                if count:
                    opcode = instruction.opcode
                    line.opcodes[opcode] = line.opcodes.get(opcode, 0) + count
                before = self.ptx_lines.get(instruction.line, (0, None, None))[0]
                self.ptx_lines[instruction.line] = (before + count, line.file, line.line)

    def _access(self) -> None:
        by_line: dict[Place, dict[_Kind, list[SiteTally]]] = defaultdict(dict)
        for instruction in self.code:
            site = self.tally.site(instruction)
            line = self._line(instruction)
            line.divergences += self._scaled(site.divergences)
            line.tensor_products += self._scaled(site.tensor_products)
            line.tensor_cycles += self._scaled(site.tensor_cycles)
            line.tensor_bytes += self._scaled(site.tensor_bytes)
            if site.requests:
                key = instruction.opcode, site.nbytes, site.stride_bytes
                by_line[_place(instruction)].setdefault(key, []).append(site)
        for place, sites in by_line.items():
            accesses = [self._access_cost(*of_kind) for of_kind in sites.items()]
            self.lines[place].accesses = accesses

    def _access_cost(self, kind: _Kind, sites: list[SiteTally]) -> AccessCost:
        conflicts = [site.conflict for site in sites if site.conflict is not None]
        worst = max(conflicts, key=lambda each: each.ways, default=None)
        opcode, nbytes, stride_bytes = kind
        counts: dict[str, Any] = {
            name: self._scaled(sum(getattr(s, name) for s in sites)) for name in ADDED
        }
        cost = AccessCost(opcode, nbytes, stride_bytes=stride_bytes, **counts)
        if worst is None:
            return cost
        ways, bank, lanes = worst.ways, worst.bank, list(worst.lanes)
        return replace(cost, conflict_ways=ways, conflict_bank=bank, conflict_lanes=lanes)

    def _read(self) -> None:
        places = {place_of(instruction): _place(instruction) for instruction in self.code}
        merged: dict[tuple[Place, str], list[Touched]] = defaultdict(list)
        for (key, _), touched in self.tally.read.items():
            merged[places[key], touched.name].append(touched)
        for (place, name), parts in merged.items():
            requested = sum(part.requested for part in parts)
            distinct = sum(part.distinct for part in parts)
            # In a sample all CTAs may read the same bytes, or each its own: the ratio is kept.
            read = ReadCost(name, self._scaled(requested), self._scaled(distinct))
            self.lines[place].reads.append(read)

    def _idle(self) -> None:
        """Charge idle lanes to the branches that divided their warps."""
        before: dict[int, list[int]] = defaultdict(list)
        for block in self.blocks:
            for successor in block.successors:
                before[successor].append(block.index)
        everywhere = self._share_idle(0)
        for block in self.blocks:
            idle = self._share_idle(block.index) - everywhere
            if not self.runs[block.index] or idle < _NOTICEABLE_IDLE:
                continue
            branch = self._divider(block, before)
            if branch is not None:
                executed = len(block.code) * float(self.runs[block.index])
                self._line(branch).idle += executed * idle * self.scale

    def _share_idle(self, index: int) -> float:
        warps = int(self.runs[index])
        return 1 - int(self.tally.lanes[index]) / (32 * warps) if warps else 0.0

    def _divider(self, block: Block, before: dict[int, list[int]]) -> Instruction | None:
        """Return the nearest branch before a block at which warps diverged."""
        seen: set[int] = set()
        front: Iterable[int] = before[block.index]
        while front and len(seen) < _FARTHEST:
            ends = [self.blocks[index].code[-1] for index in front]
            best = max(ends, key=lambda each: self.tally.site(each).divergences)
            if self.tally.site(best).divergences:
                return best
            seen.update(front)
            front = [p for index in front for p in before[index] if p not in seen]
        return None


def _place(instruction: Instruction) -> Place:
    user = instruction.user
    return (shown(user.file), user.line) if user else (None, None)
