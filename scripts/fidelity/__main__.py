"""Compares the emulator with a Hopper GPU, bit by bit.

    python -m scripts.fidelity instructions  every instruction, 2**20 operand sets
    python -m scripts.fidelity warps         every warp instruction
    python -m scripts.fidelity maps          tensor maps, and tiles outside a tensor

Run it from the repository root. Prints what differs and the tables of docs/emulator-fidelity.md.
"""

import argparse
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import numpy as np

from nvfp4.emulator.arithmetic import Op, resolve
from scripts.fidelity import maps, table
from scripts.fidelity.cases import WARP_CASES, approximate_opcodes, exact_opcodes
from scripts.fidelity.execute import THREADS, Array, by_definition, on_device, on_emulator
from scripts.fidelity.operands import operands
from scripts.fidelity.outcome import Outcome, approximation_errors, difference
from scripts.fidelity.ptx import instruction_inputs, instruction_module, warp_module

Prepared = tuple[Op, list[Array], list[Array]]


def prepare(opcode: str, count: int) -> Prepared:
    """The instruction, its operands and the emulator's results."""
    op = resolve(opcode)
    columns = operands(op, count)
    return op, columns, by_definition(op, columns)


def prepared(arguments: argparse.Namespace) -> Iterator[tuple[str, Future[Prepared]]]:
    """The instructions in order, only a few of them ahead of the device, to save memory."""
    opcodes = [o for o in [*exact_opcodes(), *approximate_opcodes()] if arguments.only in o]
    with ThreadPoolExecutor(arguments.workers) as pool:
        ahead: list[tuple[str, Future[Prepared]]] = []
        for opcode in opcodes:
            ahead.append((opcode, pool.submit(prepare, opcode, arguments.count)))
            if len(ahead) > 2 * arguments.workers:
                yield ahead.pop(0)
        yield from ahead


def instructions(arguments: argparse.Namespace) -> Iterator[Outcome]:
    """Every instruction that acts on one lane alone."""
    approximate = set(approximate_opcodes())
    for opcode, future in prepared(arguments):
        try:
            op, columns, got = future.result()
            want = on_device(instruction_module(op), instruction_inputs(op, columns))
        except Exception as error:
            yield Outcome(opcode, 0, 0, error=f"{type(error).__name__}: {error}"[:600])
            continue
        outcome = difference(opcode, columns, got, want)
        if opcode in approximate:
            outcome.errors = approximation_errors(op, columns, got[0], want[0])
        yield outcome


def warps(arguments: argparse.Namespace) -> Iterator[Outcome]:
    """Every warp instruction in whole warps, and in lanes picked at random."""
    rng = np.random.default_rng(2026)
    count = max(arguments.count, 32 * THREADS) // THREADS * THREADS
    a, b, c = (rng.integers(0, 2**32, count, dtype=np.uint64).astype(np.uint32) for _ in range(3))
    c &= np.uint32(0x1F1F)
    lane = np.arange(count, dtype=np.uint32) % 32
    for name, instruction in WARP_CASES.items():
        for subset in (False, True):
            inputs = [a, b, c]
            if subset and name.startswith("shfl"):
                # A lane must not read one that does not take part: each half of a warp is whole.
                inputs[1] = (b & np.uint32(0xF)) | (lane >> 4 << 31)
                inputs[2] = c | np.uint32(0x1000)
            module = warp_module(instruction, subset)
            label = f"`{name}` ({'some lanes' if subset else 'whole warps'})"
            got, want = on_emulator(module, inputs), on_device(module, inputs)
            yield difference(label, [lane, *inputs], got, want)


def tensor_maps(_: argparse.Namespace) -> Iterator[Outcome]:
    """Tensor maps that the driver encodes, and tiles that reach out of their tensor."""
    yield from maps.compare_maps()
    yield from maps.compare_fills()


def main() -> int:
    """Runs one command; 1 if bits differ that must not."""
    commands: dict[str, Callable[[argparse.Namespace], Iterator[Outcome]]] = {
        "instructions": instructions,
        "warps": warps,
        "maps": tensor_maps,
    }
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("command", choices=commands)
    parser.add_argument("--count", type=int, default=1 << 20, help="random operand sets")
    parser.add_argument("--workers", type=int, default=8, help="threads that emulate")
    parser.add_argument("--only", default="", help="only opcodes that contain this")
    arguments = parser.parse_args()
    start, outcomes, bad = time.monotonic(), [], 0
    for outcome in commands[arguments.command](arguments):
        outcomes.append(outcome)
        if outcome.error or (outcome.different and outcome.errors is None):
            bad += 1
            print(outcome, flush=True)
    seconds = time.monotonic() - start
    print(f"{arguments.command}: {len(outcomes)} compared, {bad} differ, {seconds:.1f} s")
    shown = table.instructions if arguments.command == "instructions" else table.plain
    print(shown(outcomes))
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
