"""A loaded PTX module: its syntax tree, its variables in memory, its compiled kernels."""

from collections import Counter
from functools import lru_cache

import numpy as np

from nvfp4.emulator.compiler.codegen import CompiledKernel, compile_kernel
from nvfp4.emulator.errors import LaunchError
from nvfp4.emulator.ptx.link import link
from nvfp4.emulator.ptx.parser import parse
from nvfp4.emulator.ptx.syntax import Program, Variable
from nvfp4.emulator.ptx.types import Array
from nvfp4.emulator.state.memory import isolated
from nvfp4.records.launch import Buffer

KEPT: dict[str, "LoadedModule"] = {}
"""Modules with variables, by their text. They are kept, since other modules may have the addresses
of their variables."""


class LoadedModule:
    """A loaded module. Its variables keep their values from launch to launch, as on a device.

    tracked: kernels that have loaded undefined bytes, and are compiled with `memory` from then on.
    waiting: by kernel, in how many launches its CTAs or warps waited for each other so long that
    other orders showed nothing.
    """

    def __init__(self, text: str) -> None:
        self._text = text
        self.syntax = parse(text)
        self.memory: dict[str, Array] = {}
        self.constants: set[str] = set()
        self.tracked: set[str] = set()
        self.waiting: Counter[str] = Counter()
        self._declared: dict[str, Variable] = {}
        self._programs: dict[str, Program] = {}
        self._compiled: dict[tuple[str, bool, bool], CompiledKernel] = {}

    @property
    def kernels(self) -> list[str]:
        return [f.name for f in self.syntax.functions.values() if f.entry]

    def kernel(self, name: str, check: bool, memory: bool = False) -> CompiledKernel:
        """Return the kernel, compiled once for each `check` and `memory` (see compile_kernel).
        Raises the errors of parsing, linking and compiling."""
        key = (name, check, memory)
        if key not in self._compiled:
            if name not in self._programs:
                program = link(self.syntax, name)
                self._allocate(program)
                self._programs[name] = program
            self._compiled[key] = compile_kernel(self._programs[name], check, memory)
        return self._compiled[key]

    def variable(self, name: str) -> Buffer:
        """Return the memory of a variable, whose value lasts from launch to launch. Raises
        LaunchError."""
        if name not in self.memory and self.kernels:
            self.kernel(self.kernels[0], check=False)
        if name not in self.memory:
            raise LaunchError(f"the module has no variable {name}")
        array = self.memory[name]
        return Buffer(f"variable {name}", array.ctypes.data, array.size)

    def symbols(self) -> dict[str, int]:
        return {name: array.ctypes.data for name, array in self.memory.items()}

    def buffers(self) -> list[Buffer]:
        return [
            Buffer(f"variable {name}", array.ctypes.data, array.size, name not in self.constants)
            for name, array in self.memory.items()
        ]

    def _allocate(self, program: Program) -> None:
        fresh = [v for v in program.variables.values() if v.name not in self.memory]
        for variable in program.variables.values():
            if self._declared.setdefault(variable.name, variable) is not variable:
                raise LaunchError(f"two kernels of the module have variables {variable.name}")
        for variable in fresh:
            KEPT[self._text] = self
            if variable.nbytes is None:
                raise LaunchError(f"variable {variable.name} has no size in this module")
            if variable.space == "const":
                self.constants.add(variable.name)
            self.memory[variable.name] = isolated(variable.nbytes, variable.align)
        for variable in fresh:
            self._initialise(variable)

    def _initialise(self, variable: Variable) -> None:
        array = self.memory[variable.name]
        for offset, width, value in variable.initial:
            if isinstance(value, tuple):
                symbol, addend = value
                if symbol not in self.memory:
                    raise LaunchError(
                        f"variable {variable.name} is initialised with {symbol}, which is not "
                        "a variable of the module"
                    )
                value = self.memory[symbol].ctypes.data + addend
            raw = value.to_bytes(width, "little")
            array[offset : offset + width] = np.frombuffer(raw, np.uint8)


def load_module(text: str) -> LoadedModule:
    """Return the module of a PTX text, with the variables that it had before."""
    return KEPT.get(text) or recent_module(text)


@lru_cache(maxsize=64)
def recent_module(text: str) -> LoadedModule:
    """Load a module, once as long as few others are loaded."""
    return LoadedModule(text)
