"""One byte outside a tensor of the judge is a fault, before and past it, in every shape."""

from __future__ import annotations

import struct
from collections.abc import Iterator

import pytest
import torch
import yaml
from bot import root

from buffers import SharedBuffers, create_buffers, output_name
from layout import input_names, names
from nvfp4 import emulator
from nvfp4.capture.launch import Buffer, Launch
from nvfp4.capture.torch_memory import ProcessMemory
from nvfp4.emulator.errors import OutOfBounds, ReadOnlyMemory

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
def judged(request: pytest.FixtureRequest) -> Iterator[tuple[SharedBuffers, ProcessMemory]]:
    """The buffers of a case and the memory of its launches, as the runner registers them."""
    buffers = create_buffers(*request.param, torch.device("cpu"))
    memory = ProcessMemory()
    for name, tensor in buffers.tensors.items():
        if name != output_name:
            memory.register(Buffer(name, tensor.data_ptr(), tensor.numel(), name == "c"))
    yield buffers, memory
    buffers.close()


def launch(memory: ProcessMemory, body: str, address: int) -> None:
    """Run one thread that has an address in %q0."""
    text = KERNEL.replace("%BODY%", body)
    parameters = [struct.pack("<Q", address)]
    emulator.run(Launch(text, "k", (1, 1, 1), (1, 1, 1), parameters, memory=memory))


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
    for name in input_names:
        with pytest.raises(ReadOnlyMemory, match=f"byte 0 of {name} "):
            launch(memory, store, buffers.tensors[name].data_ptr())
