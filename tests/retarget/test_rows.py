"""Each row of the table: the same bits before and after, and text that the assembler takes."""

import re
import shutil
from pathlib import Path

import numpy as np
import pytest
from kernels_of_rows import (
    HEADER,
    THREADS,
    Row,
    columns_of,
    kernel,
    on_gpu,
    pattern,
    ptxas,
    results,
)
from rows import ALL, ROWS

from nvfp4.retarget.rewrite import rewrite


def name_of(row: Row) -> str:
    return row.text


@pytest.mark.parametrize("row", ROWS, ids=name_of)
def test_a_rewritten_instruction_gives_the_same_bits(row: Row) -> None:
    everything = columns_of(row)
    few = [column[: 8 * THREADS] for column in everything]
    for guarded, columns in ((False, everything), (True, few)):
        text = HEADER + kernel(row, "k", guarded)
        expected = results(text, "k", row, columns)
        seen = set()
        for target in row.lacking:
            rewritten = rewrite(text, target)
            (report,) = rewritten.kernels
            assert dict(report.rewritten) == {row.opcode: 1}
            body = rewritten.ptx.partition("{")[2]
            if body in seen:
                continue
            seen.add(body)
            got = results(rewritten.ptx, "k", row, columns)
            different = np.flatnonzero(got != expected)
            assert not different.size, [
                *(hex(column[different[0]]) for column in columns),
                hex(expected[different[0]]),
                hex(got[different[0]]),
            ]


@pytest.mark.gpu
@pytest.mark.parametrize("row", ROWS, ids=name_of)
def test_a_rewritten_instruction_gives_the_same_bits_on_a_gpu(row: Row) -> None:
    text, columns = HEADER + kernel(row, "k", False), columns_of(row)
    expected = results(text, "k", row, columns)
    got = on_gpu(text, len(expected) // THREADS, THREADS, [*columns, pattern(len(expected), row)])
    np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize("name", ["min", "max"])
def test_the_extreme_of_three_magnitudes(name: str) -> None:
    """The emulator does not know it, so the manual's definition is the yardstick."""
    row = Row(f"{name}.abs.f32 D, A, B, C", "b32", ("b32",) * 3, ("sm_90a",))
    columns = columns_of(row)
    text = rewrite(HEADER + kernel(row, "k", False), "sm_90a").ptx
    got = results(text, "k", row, columns).view(np.float32)
    sizes = np.abs(np.stack(columns).view(np.float32))
    np.testing.assert_array_equal(got, (np.fmin if name == "min" else np.fmax).reduce(sizes))


@pytest.mark.skipif(shutil.which("ptxas") is None, reason="needs ptxas")
@pytest.mark.parametrize("target", ALL)
def test_the_assembler_takes_every_rewritten_instruction(target: str, tmp_path: Path) -> None:
    kernels = [kernel(row, f"k{i}", bool(i % 2)) for i, row in enumerate(ROWS)]
    rewritten = rewrite(HEADER + "".join(kernels), target)
    assert not ptxas(rewritten.ptx, target, tmp_path)
    for row, report in zip(ROWS, rewritten.kernels, strict=True):
        assert bool(report.rewritten) == (target in row.lacking), row.text


@pytest.mark.skipif(shutil.which("ptxas") is None, reason="needs ptxas")
@pytest.mark.parametrize("target", ["sm_80", "sm_89", "sm_90a"])
def test_what_is_rewritten_is_what_the_assembler_refuses(target: str, tmp_path: Path) -> None:
    """Nothing is rewritten without need. The assembler names the line of each instruction that it
    refuses; a store follows it."""
    text = HEADER + "".join(kernel(row, f"k{i}", False) for i, row in enumerate(ROWS))
    text = text.replace("sm_100a", target)
    places = [n for n, line in enumerate(text.splitlines()) if line.startswith("st.global.")]
    refused = {int(n) for n in re.findall(r", line (\d+); error", ptxas(text, target, tmp_path))}
    assert refused <= set(places)
    for row, place in zip(ROWS, places, strict=True):
        assert (place in refused) == (target in row.lacking), row.text
