"""The comparison with a GPU, without one: its test kernels run in the emulator alone."""

import numpy as np
import pytest
from ptx_runs import run_ptx

from nvfp4.emulator.arithmetic import resolve
from nvfp4.records.tensormap import DataType, Fill, TensorMap
from scripts.fidelity.cases import WARP_CASES, approximate_opcodes, exact_opcodes, expand
from scripts.fidelity.execute import by_definition, on_emulator
from scripts.fidelity.maps import COPY, variations
from scripts.fidelity.operands import operands
from scripts.fidelity.outcome import difference
from scripts.fidelity.ptx import instruction_inputs, instruction_module, warp_module


def test_a_pattern_lists_its_alternatives() -> None:
    assert expand("a.{b,c}{,.d}") == ["a.b", "a.b.d", "a.c", "a.c.d"]
    opcodes = [*exact_opcodes(), *approximate_opcodes()]
    assert len(set(opcodes)) == len(opcodes) > 1100


@pytest.mark.parametrize(
    "start", [0, *(pytest.param(n, marks=pytest.mark.corpus) for n in range(1, 8))]
)
def test_every_test_kernel_runs_in_the_engine(start: int) -> None:
    for opcode in [*exact_opcodes(), *approximate_opcodes()][start::8]:
        op = resolve(opcode)
        columns = [column[:600] for column in operands(op, 300)]
        run = on_emulator(instruction_module(op), instruction_inputs(op, columns))
        outcome = difference(opcode, columns, by_definition(op, columns), run)
        assert outcome.tried > 300
        assert outcome.different == 0, outcome.samples[0]


def test_a_difference_is_counted_and_shown() -> None:
    op = resolve("add.u32")
    columns = operands(op, 100)
    (got,) = by_definition(op, columns)
    want = got.copy()
    want[[3, 50]] ^= 1
    outcome = difference("add.u32", columns, [got], [want])
    assert outcome.different == 2
    assert {sample["device"][0] for sample in outcome.samples} == {hex(want[3]), hex(want[50])}


def test_a_warp_kernel_runs_in_chosen_lanes() -> None:
    a = np.arange(256, dtype=np.uint32)
    chosen = np.where(a % 3 == 0, 1 << 31, 0).astype(np.uint32)
    module = warp_module(WARP_CASES["redux.sync.add.u32"], subset=True)
    result, _ = on_emulator(module, [a, chosen, a])
    for warp in range(8):
        lanes = a[32 * warp : 32 * warp + 32]
        total = lanes[lanes % 3 == 0].sum()
        got = result[32 * warp : 32 * warp + 32]
        np.testing.assert_array_equal(got, np.where(lanes % 3 == 0, total, 0))


@pytest.mark.parametrize("data_type", [DataType.FLOAT16, DataType.FLOAT32, DataType.FLOAT64])
def test_a_tile_outside_its_tensor_is_filled_as_an_h100_does(data_type: DataType) -> None:
    size = {DataType.FLOAT16: 2, DataType.FLOAT32: 4, DataType.FLOAT64: 8}[data_type]
    source, tile = np.arange(128, dtype=np.uint8), np.zeros(256, np.uint8)
    tensor_map = TensorMap(
        data_type, source.ctypes.data, (128 // size,), (), (256 // size,), (1,), fill=Fill.NAN
    )
    parameters = [tensor_map.pack(), tile.ctypes.data.to_bytes(8, "little")]
    buffers = [(name, x.ctypes.data, x.nbytes) for name, x in (("from", source), ("to", tile))]
    run_ptx(COPY, "copy", (1,), (1,), parameters, buffers=buffers)
    np.testing.assert_array_equal(tile[:128], source)
    assert (tile[128:].view(np.uint16) == 0x7FF7).all()


def test_every_tensor_map_that_is_compared_is_one_that_can_be_read() -> None:
    maps = variations()
    assert len(set(maps)) == len(maps) > 25
    assert [TensorMap.unpack(each.pack()) for each in maps] == maps
