"""A compiled kernel."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from nvfp4.emulator.errors import UnsupportedInstruction
from nvfp4.emulator.instructions.site import Site
from nvfp4.emulator.ptx.flow import loads_under_way
from nvfp4.emulator.ptx.program import Instruction, Program, SymbolAddress
from nvfp4.emulator.ptx.types import REGISTER_DTYPES, Array
from nvfp4.emulator.state.batch import Batch


@dataclass
class CompiledBlock:
    """run(batch, group, R) and, if threads may have to wait here, gate with the same arguments.

    site, end: the first and the last instruction. live_in, live_out, writes: bit sets of registers.
    kinds: how many instructions there are of each class that is counted. meeting: the block where
    the ways of its branch meet again, if they only compute until then.
    """

    run: Callable[..., Any]
    gate: Callable[..., Any] | None
    site: Site
    end: Site
    live_in: int
    live_out: int
    writes: int
    kinds: Counter[str]
    meeting: int | None = None


@dataclass
class CompiledKernel:
    """Blocks in program order. source: the generated Python.

    classes: register class by index. specials, symbols: what the registers behind the program's
    own hold. shadows: the registers that tell which bits of others are undefined. tracks_memory:
    also of those that loads bring in.
    """

    program: Program
    blocks: list[CompiledBlock]
    classes: list[str]
    specials: dict[int, str]
    symbols: dict[int, SymbolAddress]
    shadows: dict[int, int]
    tracks_memory: bool
    source: str

    @cached_property
    def instructions(self) -> list[list[Instruction]]:
        """Of each block."""
        code = iter(self.program.code)
        return [[next(code) for _ in range(block.kinds.total())] for block in self.blocks]

    @cached_property
    def loads_under_way(self) -> frozenset[int]:
        """As of ptx.early_arrivals."""
        return loads_under_way(self.program.code)

    def first_values(self, batch: Batch) -> list[Array]:
        """Registers when the kernel starts: special registers, symbol addresses, else noise."""
        noise = batch.launch.order.bytes(8 * len(self.classes), salt=1).reshape(-1, 8)
        values = [
            noise[i, :1] & 1 != 0 if cls == "pred" else noise[i].view(REGISTER_DTYPES[cls])[:1]
            for i, cls in enumerate(self.classes)
        ]
        for index in self.shadows.values():
            values[index] = np.array([-1]).astype(REGISTER_DTYPES[self.classes[index]])
        for index, name in self.specials.items():
            value = batch.special(name)
            if value is None:
                raise UnsupportedInstruction(f"the special register %{name} is not emulated")
            values[index] = value
        for index, symbol in self.symbols.items():
            base = batch.launch.symbols[symbol.name]
            values[index] = np.array([base + symbol.offset], np.uint64)
        return values
