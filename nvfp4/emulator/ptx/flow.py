"""Basic blocks of a flat kernel, what is live where, and what may be unset where."""

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from nvfp4.emulator.errors import PtxSyntaxError, SourceLocation
from nvfp4.emulator.ptx import syntax
from nvfp4.records.base import Record

ENDS = {"bra", "ret", "exit", "trap", "brkpt"}


@dataclass
class Block:
    """A basic block."""

    index: int
    start: int
    """Index of the first instruction."""
    code: list[syntax.Instruction]
    successors: list[int] = field(default_factory=list)
    """Block numbers, the fall-through one last."""
    falls_through: bool = True
    reads: int = 0
    """Registers whose values on entry matter, as a bit set."""
    writes: int = 0
    """Registers that are set, as a bit set."""
    live_in: int = 0
    """Registers whose values matter at the beginning, as a bit set."""
    live_out: int = 0
    """Registers that a successor needs, as a bit set."""


Effects = Callable[[int], "tuple[list[int], list[int]]"]


def blocks(program: syntax.Program, first: set[int], last: set[int]) -> list[Block]:
    """Cut the code at labels, after branches, before the instructions `first` (where threads may
    have to wait for each other) and after those of `last` (indices into the code).
    """
    code = program.code
    behind = {i + 1 for i, each in enumerate(code) if each.parts[0] in ENDS or i in last}
    cuts = sorted({0, len(code), *program.labels.values(), *first, *behind})
    number = {start: n for n, start in enumerate(cuts)}
    found = [Block(n, start, code[start:stop]) for n, (start, stop) in enumerate(pairwise(cuts))]
    for block in found:
        _connect(block, program, number, len(found))
    order = _order({each.index: each.successors for each in found}, 0)
    order += sorted({*range(len(found))}.difference(order))  # nothing leads to these
    place = {index: n for n, index in enumerate(order)}
    for block in found:
        block.index = place[block.index]
        block.successors = [place[each] for each in block.successors]
    return [found[index] for index in order]


def _order(ways: Mapping[int, list[int]], first: int) -> list[int]:
    """Return the blocks that the first one leads to: each behind those that lead to it, but for
    loops, whose blocks stand together, and otherwise as in the text. If those in front run first,
    threads that part go on together where their ways meet. ways: successors, among these alone."""
    found: list[int] = []
    todo = [(ways, first)]
    while todo:
        ways, first = todo.pop()
        if len(ways) == 1:
            found.append(first)
            continue
        loops = _loops({each: [to for to in ways[each] if to != first] for each in ways}, first)
        for loop in reversed(loops):
            among = set(loop)
            inside = {each: [to for to in ways[each] if to in among] for each in loop}
            todo.append((inside, loop[0]))
    return found


def _loops(ways: Mapping[int, list[int]], first: int) -> list[list[int]]:
    """Return the strongly connected parts of a graph, each behind those that lead to it, with the
    block that it is entered by in front (Kosaraju's algorithm)."""
    left: list[int] = []
    before: dict[int, list[int]] = defaultdict(list)
    todo = [(first, False)]
    seen: set[int] = set()
    while todo:
        index, done = todo.pop()
        if done:
            left.append(index)
        elif index not in seen:
            seen.add(index)
            todo.append((index, True))
            for each in sorted(ways[index]):
                before[each].append(index)
                todo.append((each, False))
    parts: list[list[int]] = []
    for index in (each for each in reversed(left) if each in seen):
        part = [index]
        seen.discard(index)
        for each in part:  # which grows
            fresh = dict.fromkeys(other for other in before[each] if other in seen)
            seen.difference_update(fresh)
            part += fresh
        parts.append(part)
    return parts


def _connect(block: Block, program: syntax.Program, number: dict[int, int], count: int) -> None:
    last = block.code[-1]
    where = SourceLocation(program.kernel, last.line, last.text, source=last.source)
    if last.parts[0] == "bra":
        target = last.operands[0] if last.operands else None
        if not isinstance(target, syntax.Target):
            raise PtxSyntaxError("bra takes a label", where=where)
        block.successors = [number[program.labels[target.label]]]
    block.falls_through = last.guard is not None or last.parts[0] not in ENDS
    if block.falls_through:
        if block.index + 1 >= count:
            raise PtxSyntaxError("control runs past the kernel's end", where=where)
        block.successors.append(block.index + 1)


def meeting(block: Block, found: list[Block], leaving: set[int]) -> int | None:
    """Return the block where the two ways of a block's last branch meet, if each is at most one
    block that nothing else leads to and that is among `leaving`; else None. leaving: blocks that
    all their threads leave together, to the same block."""
    if block.code[-1].parts[0] != "bra" or len(set(block.successors)) != 2:
        return None

    def end(way: int) -> int | None:
        alone = sum(way in other.successors for other in found) == 1
        return found[way].successors[0] if alone and way in leaving else None

    taken, following = block.successors
    ends = {taken: end(taken), following: end(following)}
    if ends[following] == taken:
        return taken
    if ends[taken] == ends[following] and (ends[taken] or 0) > max(taken, following):
        return ends[taken]
    return None


def analyse(found: list[Block], effects: Effects) -> set[int]:
    """Fill in reads, writes and liveness; return the registers that some path reads unset.

    effects: returns (registers read, registers set) of the instruction with an index. A guarded
    instruction sets nothing for certain, and needs the old value of what it may set.
    """
    must_define: list[int] = []
    for block in found:
        known = 0
        for index, instruction in enumerate(block.code, block.start):
            reads, writes = effects(index)
            for register in reads:
                if not known >> register & 1:
                    block.reads |= 1 << register
            for register in writes:
                block.writes |= 1 << register
                if instruction.guard is None:
                    known |= 1 << register
                elif not known >> register & 1:
                    block.reads |= 1 << register
        must_define.append(known)
    changed = True
    while changed:
        changed = False
        for block in reversed(found):
            out = 0
            for successor in block.successors:
                out |= found[successor].live_in
            into = block.reads | (out & ~must_define[block.index])
            if out != block.live_out or into != block.live_in:
                block.live_out, block.live_in = out, into
                changed = True
    return _maybe_unset(found, must_define, effects)


def _maybe_unset(found: list[Block], must_define: list[int], effects: Effects) -> set[int]:
    everything = -1
    entry = [everything] * len(found)
    entry[0] = 0
    work = [0]
    while work:
        index = work.pop()
        out = entry[index] | must_define[index]
        for successor in found[index].successors:
            merged = entry[successor] & out
            if merged != entry[successor]:
                entry[successor] = merged
                work.append(successor)
    unset: set[int] = set()
    for block in found:
        known = entry[block.index]
        if known == everything:
            continue
        for index, instruction in enumerate(block.code, block.start):
            reads, writes = effects(index)
            unset.update(register for register in reads if not known >> register & 1)
            if instruction.guard is None:
                for register in writes:
                    known |= 1 << register
    return unset


class Apart(Record):
    """Instructions that checks treat apart, by line or, for `compared`, by start; see the functions
    below."""

    under_way: frozenset[int]
    compared: frozenset[int]
    not_looked_at: frozenset[int]


_OTHER_SPACES = {"global", "param", "const", "local"}
_NO_RESULT = {"st", "stmatrix", "red", "cp", "bar", "barrier", "bra", "fence", "membar", "prefetch"}
_FARTHEST = 4096
"""How many instructions ahead to look for a use. An unrolled softmax mask has some 1,500 between a
load and its use."""
_TENSOR_LOAD = ("tcgen05", "ld")


def loads_under_way(code: Sequence[syntax.Instruction]) -> frozenset[int]:
    """Return the lines of loads whose values are not used before the next arrival at a barrier or
    mbarrier.

    These are loads from shared memory in a kernel with bulk copies, and loads from tensor memory.
    For the latter, the next instruction that may write there counts, too. Branches are not
    followed.
    """
    bulk = any(each.parts[:3] == ("cp", "async", "bulk") for each in code)
    return frozenset(
        load.line
        for index, load in enumerate(code)
        if (load.parts[:2] == _TENSOR_LOAD or (bulk and _may_load_from_shared(load)))
        and _arrives_first(load, code[index + 1 : index + 1 + _FARTHEST])
    )


_WAITS = ("test_wait", "try_wait")
_ByRegister = Mapping[int, Sequence[syntax.Instruction]]


def waits_not_looked_at(code: Sequence[syntax.Instruction]) -> frozenset[int]:
    """The lines of mbarrier.test_wait and try_wait on whose results nothing depends, so that the
    threads do not know whether the phase is complete."""
    waits = [each for each in code if each.parts[0] == "mbarrier" and each.parts[1] in _WAITS]
    readers = _setters_and_readers(code if waits else ())[1]
    return frozenset(each.line for each in waits if not _matters(each, readers, ()))


_NOT_PLAIN = {"volatile", "relaxed", "acquire", "mmio", "nc"}


def loads_compared(code: Sequence[syntax.Instruction]) -> frozenset[int]:
    """Return where plain loads start whose values matter to nothing but a compare-and-swap at the
    same address, which tells whether they are still right, as in the loop of the CUDA C++
    Programming Guide, Atomic Functions."""
    found = [each for each in code if each.parts[0] == "atom" and "cas" in each.parts]
    setters, readers = _setters_and_readers(code if found else ())
    swaps = [(each, _place(each, setters), _origins(each, setters)) for each in found]
    compared, others = set[int](), set[int]()
    for load in code if swaps else ():
        if load.parts[0] == "ld" and _NOT_PLAIN.isdisjoint(load.parts):
            place = _place(load, setters)
            there = {load, *(swap for swap, at, _ in swaps if at == place)}
            here = {swap: made for swap, at, made in swaps if at == place and load in made}
            known = all(origins <= there for origins in here.values())
            made, used = _sets_and_uses(load)
            fine = here and known and not made & used and not _matters(load, readers, [*here])
            (compared if fine else others).add(load.start)
    return frozenset(compared - others)


def _place(access: syntax.Instruction, setters: _ByRegister) -> tuple[syntax.Operand, int, str]:
    """Return the base, the offset in bytes and the width of an access to its second operand. A base
    that is the sum of a register and a number counts as these."""
    memory = access.operands[1]
    assert isinstance(memory, syntax.Memory)
    base, offset = memory.base, memory.offset
    made = [each for register in _registers(base) for each in setters[register.index]]
    if len(made) == 1 and made[0].parts[0] == "add":
        _, other, number = made[0].operands
        if isinstance(other, syntax.Register) and isinstance(number, syntax.Integer):
            base, offset = other, offset + number.value
    return base, offset, access.parts[-1][1:]


def _origins(swap: syntax.Instruction, setters: _ByRegister) -> set[syntax.Instruction]:
    """Return the instructions, other than moves, that give what a swap compares."""
    found = set()
    registers = [*_indices(swap.operands[2])]
    for register in registers:  # which grows
        for each in setters[register]:
            if each.parts[0] == "mov" and isinstance(each.operands[1], syntax.Register):
                registers += _indices(each.operands[1]).difference(registers)
            else:
                found.add(each)
    return found


def _matters(
    first: syntax.Instruction, readers: _ByRegister, swaps: Sequence[syntax.Instruction]
) -> bool:
    """Whether a guard, a branch or memory depends on the first result of an instruction, but for
    these swaps and what compares their expected values with what they found."""
    registers = [*_indices(first.operands[0])]
    for register in registers:  # which grows
        for reader in readers[register]:
            made, used = _sets_and_uses(reader)
            if register in _indices(reader.guard):
                return True
            checks = reader.parts[:2] in (("setp", "eq"), ("setp", "ne"))
            pairs = [_indices(swap.operands[0], swap.operands[2]) for swap in swaps]
            if reader in swaps or (checks and used in pairs):
                continue
            acts = any(isinstance(operand, syntax.Memory) for operand in reader.operands)
            if acts or "sync" in reader.parts or reader.parts[0] in _NO_RESULT:
                return True
            registers += made.difference(registers)
    return False


def is_proxy_fence(instruction: syntax.Instruction) -> bool:
    """Whether it orders accesses to shared memory before later ones by the copy engine."""
    parts = instruction.parts
    asynchronous = any(part.split("::")[0] == "async" for part in parts)
    return parts[:2] == ("fence", "proxy") and asynchronous and "global" not in parts


def _may_load_from_shared(instruction: syntax.Instruction) -> bool:
    parts = instruction.parts
    spaces = {part.split("::")[0] for part in parts}
    return parts[0] in ("ld", "ldmatrix") and _OTHER_SPACES.isdisjoint(spaces)


def _arrives_first(load: syntax.Instruction, following: Sequence[syntax.Instruction]) -> bool:
    loaded = _indices(load.operands[0])
    from_tensor = load.parts[:2] == _TENSOR_LOAD
    for each in following:
        if from_tensor and each.parts[0] == "tcgen05" and each.parts[:2] != _TENSOR_LOAD:
            return each.parts[1] != "wait::ld"  # if in a branch, the value is used behind it
        if not loaded or (is_proxy_fence(each) and not from_tensor):
            return False
        at_barrier = each.parts[0] in ("bar", "barrier") and "warp" not in each.parts
        if at_barrier or each.parts[:2] == ("mbarrier", "arrive"):
            return True
        made, used = _sets_and_uses(each)
        if each.parts[0] == "mov" and used & loaded:  # no instruction of the machine
            loaded.update(made)
        elif used & loaded:
            return False
        else:
            loaded.difference_update(made)
    return False


def _setters_and_readers(code: Sequence[syntax.Instruction]) -> tuple[_ByRegister, _ByRegister]:
    """Return the instructions that set a register, and those that read it, by register."""
    setters, readers = defaultdict(list), defaultdict(list)
    for each in code:
        made, used = _sets_and_uses(each)
        for register in made:
            setters[register].append(each)
        for register in used | _indices(each.guard):
            readers[register].append(each)
    return setters, readers


def _sets_and_uses(instruction: syntax.Instruction) -> tuple[set[int], set[int]]:
    """The registers that an instruction sets, and those that it uses, its guard aside."""
    results = 0 if instruction.parts[0] in _NO_RESULT else 1
    return _indices(*instruction.operands[:results]), _indices(*instruction.operands[results:])


def _indices(*operands: syntax.Operand | None) -> set[int]:
    return {register.index for operand in operands for register in _registers(operand)}


def _registers(operand: syntax.Operand | None) -> Iterator[syntax.Register]:
    if isinstance(operand, syntax.Register):
        yield operand
    elif isinstance(operand, syntax.OperandList):
        for each in operand.items:
            yield from _registers(each)
    elif isinstance(operand, syntax.Not):
        yield from _registers(operand.operand)
    elif isinstance(operand, syntax.Memory):
        yield from _registers(operand.base)
        for each in operand.coordinates or ():
            yield from _registers(each)
