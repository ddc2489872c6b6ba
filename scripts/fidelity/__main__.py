"""Compare the emulator with a Hopper GPU, bit by bit.

    python -m scripts.fidelity record build/kernels.pickle   where CuTe DSL is: compile and emulate
    python -m scripts.fidelity assemble                      no GPU: do all test kernels assemble?
    python -m scripts.fidelity instructions --json OUT       every instruction, 2**20 operand sets
    python -m scripts.fidelity warps --json OUT              every warp instruction
    python -m scripts.fidelity kernels --recorded PICKLE     whole kernels, native against emulated
    python -m scripts.fidelity.table FOLDER                  Markdown of those files and ncu.csv

`ncu --csv --page raw --metrics ... python -m scripts.fidelity kernels ...` counts what the
kernels execute; docs/emulator-fidelity.md has the commands and the results.
"""

from __future__ import annotations

import argparse
import itertools
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

root = Path(__file__).resolve().parent.parent

from nvfp4.emulator import run_ptx
from nvfp4.emulator.arithmetic import REGISTER_DTYPES, Op, resolve
from scripts.fidelity import kernels as fidelity_kernels
from scripts.fidelity.cases import (
    WARP_CASES,
    approximate_opcodes,
    exact_opcodes,
)
from scripts.fidelity.cuda_driver import Driver
from scripts.fidelity.operands import operands
from scripts.fidelity.ptx import HEADER, entry, warp_kernel

Array = np.ndarray[Any, Any]
THREADS = 256


@dataclass
class Errors:
    """Largest errors of an approximation: units in the last place, relative, absolute."""

    ulp: int
    relative: float
    absolute: float


@dataclass
class Outcome:
    """One instruction: operand sets tried, sets whose result bits differ, and some of them."""

    opcode: str
    tried: int
    different: int
    samples: list[dict[str, list[str]]] = field(default_factory=list)
    errors: Errors | None = None
    error: str = ""


def result_kinds(op: Op) -> list[str]:
    return [*op.results, *(["pred"] if op.writes_carry else [])]


def immediates(op: Op) -> list[int | None]:
    """lop3's truth table is part of the instruction: all 256 of them."""
    return list(range(256)) if op.opcode.startswith("lop3") else [None]


def module_text(op: Op) -> str:
    return HEADER + "".join(entry(f"k{i}", op, table) for i, table in enumerate(immediates(op)))


def on_device(driver: Driver, op: Op, columns: list[Array]) -> list[Array]:
    """The device's results for `columns`; lop3 splits them among its truth tables."""
    module = driver.load(module_text(op))
    tables = immediates(op)
    sources = [c for i, c in enumerate(columns) if tables == [None] or i != 3]
    total = len(columns[0])
    results = [np.empty(total, REGISTER_DTYPES[kind]) for kind in result_kinds(op)]
    arrays = [*sources, *results]
    addresses = [driver.allocate(array.nbytes) for array in arrays]
    for address, array in zip(addresses, sources, strict=False):
        driver.upload(address, array)
    for i, (start, stop) in enumerate(itertools.pairwise(split(total, len(tables)))):
        pointers = [
            (address + start * array.itemsize).to_bytes(8, "little")
            for address, array in zip(addresses, arrays, strict=True)
        ]
        count = stop - start
        function = driver.function(module, f"k{i}")
        grid = (-(-count // THREADS), 1, 1)
        driver.launch(function, grid, (THREADS, 1, 1), [*pointers, count.to_bytes(4, "little")])
    for address, array in zip(addresses[len(sources) :], results, strict=True):
        driver.download(address, array)
    for address in addresses:
        driver.free(address)
    driver.unload(module)
    return results


def on_engine(op: Op, columns: list[Array]) -> list[Array]:
    """The results of the same test kernels run by the emulator's engine."""
    text, tables = module_text(op), immediates(op)
    sources = [np.ascontiguousarray(c) for i, c in enumerate(columns) if tables == [None] or i != 3]
    total = len(columns[0])
    results = [np.zeros(total, REGISTER_DTYPES[kind]) for kind in result_kinds(op)]
    arrays = [*sources, *results]
    buffers = [(f"array {i}", x.ctypes.data, x.nbytes) for i, x in enumerate(arrays)]
    for i, (start, stop) in enumerate(itertools.pairwise(split(total, len(tables)))):
        pointers = [
            (array.ctypes.data + start * array.itemsize).to_bytes(8, "little") for array in arrays
        ]
        count = stop - start
        parameters = [*pointers, count.to_bytes(4, "little")]
        run_ptx(text, f"k{i}", (-(-count // THREADS),), (THREADS,), parameters, buffers=buffers)
    return results


def split(total: int, parts: int) -> list[int]:
    """Edges of `parts` runs of nearly equal length."""
    return [int(edge) for edge in np.linspace(0, total, parts + 1)]


def emulated(op: Op, columns: list[Array]) -> list[Array]:
    """The emulator's results, in pieces that stay in cache."""
    tables = immediates(op)
    edges = split(len(columns[0]), len(tables))
    pieces: list[tuple[Array, ...]] = []
    for table, start, stop in zip(tables, edges[:-1], edges[1:], strict=True):
        for low in range(start, stop, 1 << 16):
            part = [column[low : min(low + (1 << 16), stop)] for column in columns]
            if table is not None:
                part[3] = np.array(table, dtype=np.uint32)
            pieces.append(op.function(*part))
    return [np.concatenate(parts) for parts in zip(*pieces, strict=True)]


def prepare(opcode: str, count: int) -> tuple[Op, list[Array], list[Array]]:
    op = resolve(opcode)
    columns = operands(op, count)
    return op, columns, emulated(op, columns)


def difference(label: str, columns: list[Array], got: list[Array], want: list[Array]) -> Outcome:
    """got: the emulator's results for `columns`; want: the device's."""
    different = np.zeros(len(columns[0]), dtype=bool)
    for g, w in zip(got, want, strict=True):
        different |= g != w
    outcome = Outcome(label, len(columns[0]), int(different.sum()))
    wrong = np.flatnonzero(different)
    # One sample for each of the first results that differ, not many of one kind.
    _, first = np.unique(want[0][wrong], return_index=True)
    for i in wrong[first[:: max(1, len(first) // 24)][:24]]:
        outcome.samples.append(
            {
                "operands": [hex(int(column[i])) for column in columns],
                "emulated": [hex(int(g[i])) for g in got],
                "device": [hex(int(w[i])) for w in want],
            }
        )
    return outcome


def approximation_error(op: Op, columns: list[Array], got: Array, want: Array) -> Errors:
    """Over finite non-zero results of one sign; of sin and cos over angles up to pi."""

    def values(words: Array) -> Array:
        if op.opcode.endswith("x2"):
            words = words.view(np.uint16)
        if "bf16" in op.opcode:
            words = words.astype(np.uint32) << np.uint32(16)
        base = {2: np.float16, 4: np.float32, 8: np.float64}[words.itemsize]
        return words.view(base).astype(np.float64)

    with np.errstate(all="ignore"):
        g, w, x = values(got), values(want), values(columns[0])
        usable = np.isfinite(g) & np.isfinite(w) & (w != 0) & (np.sign(g) == np.sign(w))
        if op.opcode.startswith(("sin", "cos")):
            usable &= np.abs(x) <= np.pi
        size = 2 if op.opcode.endswith("16x2") else got.itemsize
        signed = [words.view(f"i{size}").astype(np.int64) for words in (got, want)]
        distance = np.abs(signed[0] - signed[1])[usable]
        absolute = np.abs(g - w)[usable]
        relative = np.abs((g - w) / w)[usable]
    return Errors(
        int(distance.max(initial=0)),
        float(relative.max(initial=0.0)),
        float(absolute.max(initial=0.0)),
    )


def instructions(arguments: argparse.Namespace) -> list[Outcome]:
    driver = None if arguments.no_device else Driver()
    print(f"device: {'the emulator itself' if driver is None else driver.name}")
    exact, approximate = exact_opcodes(), approximate_opcodes()
    wanted = [o for o in [*exact, *approximate] if arguments.only in o]
    outcomes = []

    def prepared(pool: ThreadPoolExecutor) -> Iterator[tuple[str, Future[Any]]]:
        """Futures in order, only some of them ahead, so that memory stays small."""
        ahead: list[tuple[str, Future[Any]]] = []
        for opcode in wanted:
            ahead.append((opcode, pool.submit(prepare, opcode, arguments.count)))
            if len(ahead) > 2 * arguments.workers:
                yield ahead.pop(0)
        yield from ahead

    with ThreadPoolExecutor(arguments.workers) as pool:
        for opcode, future in prepared(pool):
            try:
                op, columns, got = future.result()
                want = on_engine(op, columns) if driver is None else on_device(driver, op, columns)
            except Exception as error:
                outcomes.append(
                    Outcome(opcode, 0, 0, error=f"{type(error).__name__}: {error}"[:600])
                )
                print(f"ERROR {opcode}: {str(error)[:200]}", flush=True)
                continue
            outcome = difference(opcode, columns, got, want)
            if opcode in approximate:
                outcome.errors = approximation_error(op, columns, got[0], want[0])
            outcomes.append(outcome)
            if outcome.different and opcode not in approximate:
                print(f"DIFFERS {opcode}: {outcome.different} {outcome.samples[0]}", flush=True)
    bad = [o for o in outcomes if o.error or (o.different and o.errors is None)]
    print(f"{len(outcomes)} instructions, {len(bad)} not equal")
    return outcomes


def warps(arguments: argparse.Namespace) -> list[Outcome]:
    """Every warp instruction in whole warps, and in the lanes that a random bit picks."""
    driver = None if arguments.no_device else Driver()
    rng = np.random.default_rng(2026)
    count = max(arguments.count, 32 * THREADS) // THREADS * THREADS
    a, b, c = (rng.integers(0, 2**32, count, dtype=np.uint64).astype(np.uint32) for _ in range(3))
    c &= np.uint32(0x1F1F)
    lane = np.arange(count, dtype=np.uint32) % 32
    outcomes = []
    for name, instruction in WARP_CASES.items():
        for subset in (False, True):
            inputs = [a, b, c]
            if subset and name.startswith("shfl"):
                # A lane must not read one that does not take part: halves of a warp, apart.
                inputs[1] = (b & np.uint32(0x7FFFFFFF)) | (lane >> 4 << 31)
                inputs[2] = c | np.uint32(0x1000)
            text = warp_kernel(instruction, subset)
            got = run_warp_emulated(text, inputs)
            want = got if driver is None else run_warp_on_device(driver, text, inputs)
            label = f"{name} ({'some lanes' if subset else 'whole warps'})"
            outcome = difference(label, [lane, *inputs], got, want)
            outcomes.append(outcome)
            if outcome.different:
                print(f"DIFFERS {label}: {outcome.different} {outcome.samples[0]}")
    print(f"{len(outcomes)} warp cases, {sum(o.different > 0 for o in outcomes)} not equal")
    return outcomes


def run_warp_on_device(driver: Driver, text: str, inputs: list[Array]) -> list[Array]:
    count = len(inputs[0])
    outputs = [np.zeros(count, np.uint32) for _ in range(2)]
    arrays = [*inputs, *outputs]
    addresses = [driver.allocate(array.nbytes) for array in arrays]
    for address, array in zip(addresses, inputs, strict=False):
        driver.upload(address, array)
    module = driver.load(text)
    pointers = [address.to_bytes(8, "little") for address in addresses]
    driver.launch(
        driver.function(module, "warp"), (count // THREADS, 1, 1), (THREADS, 1, 1), pointers
    )
    for address, array in zip(addresses[len(inputs) :], outputs, strict=True):
        driver.download(address, array)
    for address in addresses:
        driver.free(address)
    driver.unload(module)
    return outputs


def run_warp_emulated(text: str, inputs: list[Array]) -> list[Array]:
    count = len(inputs[0])
    outputs = [np.zeros(count, np.uint32) for _ in range(2)]
    arrays = [np.ascontiguousarray(array) for array in [*inputs, *outputs]]
    buffers = [(f"array {i}", x.ctypes.data, x.nbytes) for i, x in enumerate(arrays)]
    pointers = [array.ctypes.data.to_bytes(8, "little") for array in arrays]
    run_ptx(text, "warp", (count // THREADS,), (THREADS,), pointers, buffers=buffers)
    return arrays[len(inputs) :]


def kernels(arguments: argparse.Namespace) -> list[Outcome]:
    """Recorded launches, natively, against what the emulator gave."""
    recording = fidelity_kernels.Recording.load(arguments.recorded)
    natively = fidelity_kernels.run_natively(Driver(), recording)
    outcomes = []
    for emulated_launch, launch in zip(recording.launches, natively, strict=True):
        label = f"{launch.name} {'x'.join(map(str, launch.shape))}"
        got, want = (x.output.reshape(-1) for x in (emulated_launch, launch))
        outcomes.append(difference(label, [np.arange(got.size)], [got], [want]))
        print(f"{label}: {outcomes[-1].different} of {outcomes[-1].tried} outputs differ")
    return outcomes


def assemble(arguments: argparse.Namespace) -> list[Outcome]:
    """Whether ptxas takes every test kernel, and the emulator every opcode."""
    outcomes = []

    def one(opcode: str) -> Outcome:
        try:
            op = resolve(opcode)
            emulated(op, operands(op, 64))
            text = module_text(op)
        except Exception as error:
            return Outcome(opcode, 0, 0, error=f"{type(error).__name__}: {error}")
        with tempfile.NamedTemporaryFile("w", suffix=".ptx") as file:
            file.write(text)
            file.flush()
            run = subprocess.run(
                ["ptxas", "-arch=sm_90a", "-O1", "-o", "/dev/null", file.name],
                capture_output=True,
                text=True,
                check=False,
            )
        return Outcome(opcode, 0, 0, error=run.stderr.strip()[:400] if run.returncode else "")

    wanted = [o for o in [*exact_opcodes(), *approximate_opcodes()] if arguments.only in o]
    with ThreadPoolExecutor(arguments.workers) as pool:
        outcomes = list(pool.map(one, wanted))
    bad = [o for o in outcomes if o.error]
    for outcome in bad:
        print(f"{outcome.opcode}: {outcome.error}")
    print(f"{len(outcomes)} opcodes, {len(bad)} refused")
    return outcomes


def record(arguments: argparse.Namespace) -> list[Outcome]:
    recording = fidelity_kernels.record(root)
    recording.save(arguments.recorded)
    for launch in recording.launches:
        print(f"{launch.name} {launch.shape}: {launch.counts['warp_instructions']}")
    return []


def main() -> int:
    commands: dict[str, Callable[[argparse.Namespace], list[Outcome]]] = {
        "record": record,
        "assemble": assemble,
        "instructions": instructions,
        "warps": warps,
        "kernels": kernels,
    }
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("command", choices=commands)
    parser.add_argument("--json", type=Path, help="write the outcomes to this file")
    parser.add_argument("--recorded", type=Path, default=root / "build" / "kernels.pickle")
    parser.add_argument("--count", type=int, default=1 << 20, help="random operand sets")
    parser.add_argument("--workers", type=int, default=8, help="threads that emulate")
    parser.add_argument("--only", default="", help="only opcodes that contain this")
    parser.add_argument("--no-device", action="store_true", help="warps, instructions: dry run")
    arguments = parser.parse_args()
    start = time.monotonic()
    outcomes = commands[arguments.command](arguments)
    print(f"{arguments.command}: {time.monotonic() - start:.1f} s")
    if arguments.json:
        arguments.json.write_text(json.dumps([asdict(outcome) for outcome in outcomes], indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
