"""Machine code of the emulator's loops, loaded before a submission is known.

A line of text names a loop and the types of its arguments. An executor loads the usual lines and
those that earlier executors missed, or compiles them if this user's cache lacks them.

An executor that has run a submission is not trusted. The machine code that it compiles is deleted
with it; it only reports the lines, which the judge keeps in a file. Lines that do not name a known
loop and known types are left out.
"""

import contextlib
import importlib
import pkgutil
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from numba import types

from nvfp4 import emulator, model
from nvfp4.emulator.loops import COMPILED, LOOPS
from nvfp4.records.files import read_whole
from nvfp4.sandbox.caches import MISSED_LOOPS, locked, most_missed_bytes

_SCALARS = {str(each): each for each in (types.boolean, *types.real_domain, *types.integer_domain)}
_ARRAYS = {
    f"{name}[{dimensions}]": types.Array(scalar, dimensions, "C")
    for name, scalar in _SCALARS.items()
    for dimensions in (1, 2, 3)
}
_TYPES = {**_SCALARS, **_ARRAYS}
_NAMES = {each: name for name, each in _TYPES.items()}

_MOST_S = 20.0
"""Time limit for compiling; a later executor continues."""

USUAL = """
state.native.visit_global uint64[1] int64[1] int64 int64 uint64[1] uint64[1] int64[1] uint8[1] \
int64 int64 int64[2]
state.native.gather uint64[1] uint32[2]
state.native.scatter uint64[1] uint16[2]
state.native.shuffle int64 uint32[2] uint32[2] uint32[2] uint32[2] bool[2]
state.global_races.unwatched uint64[1] uint64[1] uint64[1]
state.global_races.note_writes uint64[1] uint8[2] int64[1] int64[1] int64[1] int32[3] uint64[1] \
uint64[1] uint64[1] int32[2] int32[1] int32[2]
instructions.control._divided bool[1] int64[1]
arithmetic.compiled._select bool[1] uint32[1] uint32[1] uint32[1]
arithmetic.compiled.take uint16[1] uint8[1] uint16[1]
arithmetic.compiled.take uint32[1] uint8[1] uint32[1]
arithmetic.compiled.lanes_f16_to_f32 uint16[1] uint32[1]
arithmetic.compiled.lanes_f32_to_f16 uint32[1] uint16[1]
arithmetic.compiled.lanes_mul_f16 uint16[1] uint16[1] uint16[1]
arithmetic.compiled.lanes_fma_f16 uint16[1] uint16[1] uint16[1] uint16[1]
arithmetic.compiled.lanes_add_f32 uint32[1] uint32[1] uint32[1]
arithmetic.compiled.lanes_mul_f32 uint32[1] uint32[1] uint32[1]
arithmetic.compiled.lanes_fma_f32 uint32[1] uint32[1] uint32[1] uint32[1]
"""
"""Modules and loops below nvfp4.emulator that most kernels need."""

SIMULATION = """
multiprocessor.simulate int64[1] int64[1] float64[1] int64[1] float64[1] float64[1] float64[1] \
float64[1] float64[1] float64[1] int64[1] int64[1] int64[1] int64[1] float64[1] float64[1] \
int64[1] int64[1] int64[2] int64[1] int64 float64 float64 float64 float64[1] float64[1] int64 \
float64 int64
multiprocessor.memory_cycles float64 float64[1] float64[1]
"""
"""Lines, below nvfp4.model, of the loops that a prediction needs."""


def lines_of(text: str, package: str) -> list[str]:
    """Return the lines of `USUAL` or `SIMULATION`, with the package's name."""
    return [f"{package}.{line}" for line in text.splitlines() if line]


def compiled_since(number: int) -> list[str]:
    """Return a line for each loop that this process has compiled, except the first `number`."""
    return [
        " ".join([name, *(_NAMES[each] for each in of)])
        for name, of in COMPILED[number:]
        if all(each in _NAMES for each in of)  # others are compiled with their callers
    ]


def load(folder: Path) -> None:
    """Load the usual loops, and those that executors lacked before."""
    for package in (emulator, model):
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            importlib.import_module(module.name)
    _compile(folder, lines_of(USUAL, emulator.__name__))
    compile_missed(folder)


def load_simulation(folder: Path) -> None:
    """Load what a prediction needs."""
    _compile(folder, lines_of(SIMULATION, model.__name__))


def compile_missed(folder: Path) -> None:
    """Load or compile the loops that executors were missing, and forget lines that name none, as
    those that an earlier version has left."""
    with contextlib.suppress(OSError):
        text = read_whole(folder / MISSED_LOOPS, most_missed_bytes).decode("utf-8", "replace")
        lines = text.splitlines(keepends=True)
        if wrong := _compile(folder, lines):
            kept = [each for each in lines if each not in wrong]
            (folder / MISSED_LOOPS).write_text("".join(kept), "utf-8")


def keep_no_more() -> None:
    """Keep machine code that this process compiles from now on only until it ends."""
    for each in LOOPS.values():
        each._cache.disable()


def _compile(folder: Path, lines: Iterable[str]) -> list[str]:
    """Load the loops of these lines, or compile and keep them. Returns the lines that name none."""
    wrong: list[str] = []
    end_s = time.monotonic() + _MOST_S
    for line in lines:
        if time.monotonic() > end_s:
            break
        with contextlib.ExitStack() as stack:
            with contextlib.suppress(OSError):  # no cache, or another process is slow
                stack.enter_context(locked(folder / "lock"))
            if not compile_line(line):
                wrong.append(line)
    return wrong


def compile_line(line: str) -> bool:
    """Compile the loop for the types that a line names; return whether there is such a loop."""
    name, *names = line.split() or [""]
    dispatcher: Any = LOOPS.get(name)
    if dispatcher is not None and all(each in _TYPES for each in names):
        with contextlib.suppress(Exception):  # Numba's, for types that the loop does not take
            dispatcher.compile(tuple(_TYPES[each] for each in names))
            return True
    return False
