"""Compiles the loops that executors were missing, for every process that emulates later.

    python -m nvfp4.executor.machine_code

An executor runs what a submission hands over, so machine code that it has compiled ends with it.
It only says which loops these were, for arguments of which types. This process, which sees nothing
of a submission, reads that from its standard input, a loop a line, and compiles them anew. What it
is told can choose no more than that: any other loop or type is left out.
"""

import contextlib
import importlib
import pkgutil
import sys
from itertools import islice
from typing import Any

from numba import types

from nvfp4 import emulator, model
from nvfp4.emulator.loops import COMPILED, LOOPS
from nvfp4.sandbox import isolation

_SCALARS = {str(each): each for each in (types.boolean, *types.real_domain, *types.integer_domain)}
_ARRAYS = {
    f"{name}[{dimensions}]": types.Array(scalar, dimensions, "C")
    for name, scalar in _SCALARS.items()
    for dimensions in (1, 2, 3)
}
_TYPES = {**_SCALARS, **_ARRAYS}
_NAMES = {each: name for name, each in _TYPES.items()}

_MOST_LINES = 256
"""Of one judgement. An executor that finds no machine code compiles 70 loops."""


def compiled_since(number: int) -> list[str]:
    """A line for each loop that this process has compiled, without the first `number`."""
    return [
        " ".join([name, *(_NAMES[each] for each in of)])
        for name, of in COMPILED[number:]
        if all(each in _NAMES for each in of)  # others are compiled with whoever calls them
    ]


def find_loops() -> None:
    """Loads all modules that have some."""
    for package in (emulator, model):
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            importlib.import_module(module.name)


def compile_line(line: str) -> None:
    """Compiles one of `compiled_since`, or nothing."""
    name, *names = line.split() or [""]
    dispatcher: Any = LOOPS.get(name)
    if dispatcher is not None and all(each in _TYPES for each in names):
        with contextlib.suppress(Exception):  # Numba's, for types that the loop does not take
            dispatcher.compile(tuple(_TYPES[each] for each in names))


def main() -> None:
    """Until there are no more lines, or the judge ends."""
    isolation.die_with_parent()
    find_loops()
    for line in islice(sys.stdin, _MOST_LINES):
        compile_line(line)


if __name__ == "__main__":
    main()
