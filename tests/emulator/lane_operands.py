"""Operands, one call, and a comparison with an oracle for tests of lane instructions."""

from collections.abc import Callable
from typing import Any

import numpy as np

from nvfp4.emulator.arithmetic import REGISTER_DTYPES, Op, resolve
from nvfp4.emulator.ptx.types import Array
from scripts.fidelity.operands import operands as all_operands


def call(opcode: str, *sources: Any, results: int = 1, count: int | None = None) -> Any:
    """The results of one lane, as Python ints (one alone, else a tuple). Sources are ints."""
    op = resolve(opcode, results, count)
    arrays = [
        np.array([source], dtype=REGISTER_DTYPES[kind])
        for source, kind in zip(sources, op.sources, strict=True)
    ]
    out = tuple(int(result[0]) for result in op.function(*arrays))
    return out[0] if len(out) == 1 else out


def agree(op: Op, columns: list[Array], oracle: Callable[..., Any]) -> None:
    """Each lane of an instruction gives what an oracle does: one result, or a tuple of several."""
    got = op.function(*columns)
    for i, row in enumerate(zip(*(column.tolist() for column in columns), strict=True)):
        want = oracle(*map(int, row))
        want = want if isinstance(want, tuple) else (want,)
        found = tuple(int(each[i]) for each in got)
        assert found == tuple(map(int, want)), [hex(word) for word in row]


def both_halves(function: Callable[..., int]) -> Callable[..., int]:
    """A function of 16 bits, on the low and the high half of each word."""
    return lambda *w: function(*(x & 0xFFFF for x in w)) | function(*(x >> 16 for x in w)) << 16


def operands(op: Op, count: int) -> list[Array]:
    """`count` random operand sets, then at most 4096 combinations of special values."""
    columns = all_operands(op, count)
    special = np.random.default_rng(0).permutation(len(columns[0]) - count)[:4096]
    return [np.concatenate([column[:count], column[count:][special]]) for column in columns]
