"""One byte outside a tensor of the judge is a fault, before and past it, in every shape."""

import gc
import struct
from collections.abc import Iterator

import pytest
import torch
import yaml
from bot import root
from conftest import run_listed

from gemv import sizes
from nvfp4.capture import torch_memory
from nvfp4.capture.torch_memory import ProcessMemory
from nvfp4.emulator.errors import OutOfBounds, ReadOnlyMemory
from nvfp4.emulator.state.memory import RED_ZONE_BYTES, isolated
from nvfp4.gpu.buffers import SharedBuffers, create_buffers, output_name
from nvfp4.problems.nvfp4_gemv.extras import names
from nvfp4.records.launch import Buffer, Launch

_task = yaml.safe_load((root / "task.yml").read_text())
SHAPES = sorted({(t["m"], t["k"], t["l"]) for t in _task["tests"] + _task["benchmarks"]})

KERNEL = """.version 8.8
.target sm_100a
.address_size 64
.visible .entry k(.param .u64 a) {
.reg .b64 %q<2>; .reg .b32 %r<2>; .reg .b16 %h<2>;
ld.param.u64 %q0, [a]; mov.b16 %h0, 0;
%BODY%
ret; }
"""


@pytest.fixture(params=SHAPES, ids=lambda shape: "x".join(map(str, shape)))
def judged(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Iterator[tuple[SharedBuffers, ProcessMemory]]:
    """The buffers of a case and the memory of its launches, as the runner registers them."""
    # Tensors of other tests may have been where a red zone is.
    monkeypatch.setattr(torch_memory, "_live_tensors", torch_memory.LiveTensors())
    # The search for tensors looks at what is made from now on, which is quick.
    gc.freeze()
    buffers = create_buffers(sizes(*request.param), torch.device("cpu"))
    memory = ProcessMemory()
    for name, tensor in buffers.tensors.items():
        if name != output_name:
            memory.register(Buffer(name, tensor.data_ptr(), tensor.numel(), name == "c"))
    yield buffers, memory
    buffers.close()
    gc.unfreeze()


def launch(memory: ProcessMemory, body: str, address: int) -> None:
    """Run one thread that has an address in %q0."""
    text = KERNEL.replace("%BODY%", body)
    parameters = [struct.pack("<Q", address)]
    run_listed(Launch(text, "k", (1, 1, 1), (1, 1, 1), parameters, memory=memory))


def test_one_byte_past_the_end_and_before_the_start_is_a_fault(
    judged: tuple[SharedBuffers, ProcessMemory],
) -> None:
    buffers, memory = judged
    read = "ld.global.u8 %r0, [%q0];"
    for name in names:
        tensor = buffers.tensors[name]
        start, nbytes = tensor.data_ptr(), tensor.numel()
        launch(memory, read, start)
        launch(memory, read, start + nbytes - 1)
        with pytest.raises(OutOfBounds, match=f" 0 bytes past the end of {name} \\({nbytes} bytes"):
            launch(memory, read, start + nbytes)
        with pytest.raises(OutOfBounds, match=f" 1 bytes before {name} "):
            launch(memory, read, start - 1)


@pytest.mark.parametrize("check", [True, False])
def test_an_element_past_c_is_a_fault_and_inputs_are_read_only(
    judged: tuple[SharedBuffers, ProcessMemory], check: bool
) -> None:
    buffers, memory = judged
    store = "st.global.b16 [%q0], %h0;"
    c = buffers.tensors["c"]
    launch(memory, store, c.data_ptr() + c.numel() - 2)
    with pytest.raises(OutOfBounds, match=r" 0 bytes past the end of c "):
        launch(memory, store, c.data_ptr() + c.numel())
    for name in names[:-1]:
        with pytest.raises(ReadOnlyMemory, match=f"byte 0 of {name} "):
            launch(memory, store, buffers.tensors[name].data_ptr())


READ = "ld.global.u8 %r0, [%q0];"
READ_WORD = "ld.global.u32 %r0, [%q0];"


def test_a_registered_buffer_ends_where_it_ends_even_inside_a_tensor() -> None:
    """One tensor covers a whole mapping, of which a part is registered."""
    whole = torch.zeros(4096, dtype=torch.uint8)
    start = whole.data_ptr() + 1024
    memory = ProcessMemory()
    memory.register(Buffer("part", start, 512))
    launch(memory, READ, start + 511)
    with pytest.raises(OutOfBounds, match=" 0 bytes past the end of part "):
        launch(memory, READ, start + 512)
    with pytest.raises(OutOfBounds, match=" 1 bytes before part "):
        launch(memory, READ, start - 1)


def test_a_tensor_that_is_gone_is_not_named_where_its_memory_is_registered_since() -> None:
    gone = torch.zeros(1 << 20, dtype=torch.uint8)
    torch_memory.remember(gone)
    start, memory = gone.data_ptr(), ProcessMemory()
    del gone
    assert start in [each.address for each in memory.freed()]
    memory.register(Buffer("part", start + 1024, 512))
    assert start not in [each.address for each in memory.freed()]


def test_buffers_or_tensors_that_touch_are_not_taken_as_one() -> None:
    whole = torch.zeros(1024, dtype=torch.uint8)
    memory, block = ProcessMemory(), bytearray(1024)
    memory.register(Buffer("left", whole.data_ptr(), 514))
    memory.register(Buffer("right", whole.data_ptr() + 514, 510))
    with pytest.raises(OutOfBounds, match="byte 512 of left "):
        launch(memory, READ_WORD, whole.data_ptr() + 512)
    left = torch.frombuffer(block, dtype=torch.uint8, count=514)
    right = torch.frombuffer(block, dtype=torch.uint8, offset=514)
    memory = ProcessMemory()
    skip = -left.data_ptr() % 4
    launch(memory, READ_WORD, left.data_ptr() + skip)
    launch(memory, READ, right.data_ptr())
    with pytest.raises(OutOfBounds):
        launch(memory, READ_WORD, (right.data_ptr() - 1) & ~3)


@pytest.mark.parametrize("nbytes", [1, 8, 56, 64, 1000, 4096])
def test_nothing_lies_next_to_a_kernel_s_parameters(nbytes: int) -> None:
    raw = isolated(nbytes, 128)
    assert raw.size == nbytes
    assert raw.ctypes.data % 128 == 0
    block = raw.base
    assert block is not None
    assert raw.ctypes.data - block.ctypes.data >= RED_ZONE_BYTES
    assert block.ctypes.data + block.nbytes - (raw.ctypes.data + nbytes) >= RED_ZONE_BYTES
