"""Machine code of the emulator's loops, which an executor loads before it knows of a submission.

It compiles what the cache of this user does not hold: the usual loops, and those that earlier
executors were missing. Once it runs what a submission hands over, machine code that it compiles
ends with it: it only says which loops these were, for arguments of which types, and the judge keeps
that in a file. What stands there can choose no more: any other loop or type is left out.
"""

import contextlib
import importlib
import os
import pkgutil
import time
from pathlib import Path
from typing import Any

import numpy as np
from numba import types

from nvfp4 import emulator, model
from nvfp4.emulator.arithmetic import compiled
from nvfp4.emulator.loops import COMPILED, LOOPS
from nvfp4.model.b200 import B200
from nvfp4.model.machine import machine
from nvfp4.model.paths import Trace
from nvfp4.model.prediction import simulated
from nvfp4.model.sass import Block, Code, Instruction
from nvfp4.sandbox.caches import MISSED_LOOPS, locked

_SCALARS = {str(each): each for each in (types.boolean, *types.real_domain, *types.integer_domain)}
_ARRAYS = {
    f"{name}[{dimensions}]": types.Array(scalar, dimensions, "C")
    for name, scalar in _SCALARS.items()
    for dimensions in (1, 2, 3)
}
_TYPES = {**_SCALARS, **_ARRAYS}
_NAMES = {each: name for name, each in _TYPES.items()}

_MOST_S = 20.0
"""Time limit to compile loops that executors lacked; a later executor continues."""


def compiled_since(number: int) -> list[str]:
    """Return a line for each loop that this process has compiled, except the first `number`."""
    return [
        " ".join([name, *(_NAMES[each] for each in of)])
        for name, of in COMPILED[number:]
        if all(each in _NAMES for each in of)  # others are compiled with their callers
    ]


def load(folder: Path) -> None:
    """Load the loops of this cache and compile those it lacks; it does not change afterwards."""
    for package in (emulator, model):
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            importlib.import_module(module.name)
    with contextlib.suppress(OSError), contextlib.ExitStack() as stack:
        with contextlib.suppress(OSError):  # no cache, or another process is slow
            stack.enter_context(locked(folder / "lock"))
        if folder.is_dir() and next(folder.glob("*/*.nbc"), None) is None:
            _compile_in_two_processes()
        _run_the_usual()
        _run_the_rest()
        compile_missed(folder)
    for each in LOOPS.values():
        each._cache.disable()


def compile_missed(folder: Path) -> None:
    """Load or compile the loops that earlier executors were missing."""
    end_s = time.monotonic() + _MOST_S
    with contextlib.suppress(OSError):
        for line in (folder / MISSED_LOOPS).read_text("utf-8", "replace").splitlines():
            if time.monotonic() < end_s:
                compile_line(line)


def _compile_in_two_processes() -> None:
    """Fills an empty cache in half the time."""
    child = os.fork()
    if child == 0:
        with contextlib.suppress(Exception):
            _run_the_rest()
        os._exit(0)
    _run_the_usual()
    os.waitpid(child, 0)


def compile_line(line: str) -> None:
    """Compiles one of `compiled_since`, or nothing."""
    name, *names = line.split() or [""]
    dispatcher: Any = LOOPS.get(name)
    if dispatcher is not None and all(each in _TYPES for each in names):
        with contextlib.suppress(Exception):  # Numba's, for types that the loop does not take
            dispatcher.compile(tuple(_TYPES[each] for each in names))


_sizes = ("b8", "b16", "b32", "b64")


def _run_the_usual() -> None:
    """Instructions that most kernels have."""
    memory = np.zeros(4096, np.uint8)
    address = memory.ctypes.data
    parameters = [address.to_bytes(8, "little")]
    emulator.run_ptx(
        _ptx(), "prepare", (2, 1, 1), (64, 1, 1), parameters, 0, [("m", address, 4096)]
    )


def _run_the_rest() -> None:
    """Every function with a name, and the simulation."""
    compiled.compile_all()
    _simulate_one_instruction()


def _simulate_one_instruction() -> None:
    """Compiles the simulation of an SM, or loads it."""
    instruction = Instruction("EXIT", "EXIT", 0, 1, 7, 7, 0)
    code = Code([instruction], [Block(0, 0, 1)], 16)
    trace = Trace(np.array([0]), np.array([1]))
    table = machine(B200, code, {}, {}, 1.0)
    simulated(B200, table, [trace], [(0,)], np.array([0]), 1, 1, clean=True)


def _ptx() -> str:
    """Loads and stores of every size, in global and shared memory, and a barrier."""
    lines = []
    for size in _sizes:
        register = {"b8": "%h0", "b16": "%h0", "b32": "%r5", "b64": "%d4"}[size]
        lines += [f"ld.global.{size} {register}, [%d2];", f"st.shared.{size} [%r4], {register};"]
        lines += ["bar.sync 0;", f"ld.shared.{size} {register}, [%r4];"]
        lines += ["bar.sync 0;", f"st.global.{size} [%d2], {register};"]
    return """
.version 8.6
.target sm_100a
.address_size 64
.visible .entry prepare(.param .u64 m)
{
    .reg .b16 %h<4>; .reg .b32 %r<8>; .reg .b64 %d<8>;
    .shared .align 16 .b8 s[1024];
    ld.param.u64 %d0, [m];
    mov.u32 %r0, %tid.x;
    mov.u32 %r1, %ctaid.x;
    mad.lo.s32 %r2, %r1, 64, %r0;
    mul.wide.s32 %d1, %r2, 16;
    add.s64 %d2, %d0, %d1;
    mov.u32 %r3, s;
    mad.lo.s32 %r4, %r0, 16, %r3;
    BODY
    ld.global.v4.b32 {%r1, %r2, %r5, %r6}, [%d2];
    st.global.v4.b32 [%d2], {%r1, %r2, %r5, %r6};
    ret;
}
""".replace("BODY", "\n    ".join(lines))
