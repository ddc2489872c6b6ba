"""Compiles the simulation, or loads it."""

import numpy as np

from nvfp4.model.b200 import B200
from nvfp4.model.machine import machine
from nvfp4.model.paths import Trace
from nvfp4.model.prediction import simulated
from nvfp4.model.sass import Block, Code, Instruction


def prepare() -> None:
    """Simulates a kernel of one instruction."""
    instruction = Instruction("EXIT", "EXIT", 0, 1, 7, 7, 0)
    code = Code([instruction], [Block(0, 0, 1)], 16)
    trace = Trace(np.array([0]), np.array([1]))
    table = machine(B200, code, {}, {}, 1.0)
    simulated(B200, table, [trace], [(0,)], np.array([0]), 1, 1, clean=True)
