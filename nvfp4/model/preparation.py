"""Compiles the simulation, while a process has nothing else to do."""

from __future__ import annotations

from collections.abc import Iterator

from nvfp4.model.b200 import B200
from nvfp4.model.machine import machine
from nvfp4.model.paths import Paths
from nvfp4.model.prediction import simulated
from nvfp4.model.sass import Block, Code, Instruction


def prepare() -> Iterator[None]:
    """One step."""
    instruction = Instruction("EXIT", "EXIT", 0, 1, 7, 7, 0)
    code = Code([instruction], [Block(0, 0, 1)], 16)
    simulated(B200, machine(B200, code, Paths([[0]], [0], [1]), {}, 1.0), 1, 1, 1, True)
    yield
