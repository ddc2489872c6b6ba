"""Buffers that two processes share: the same bytes, each tensor between unused pages."""

import ast
import mmap
import os
import random
import subprocess
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import run_python, start_python

from gemv import sizes
from nvfp4.gpu.buffers import create_buffers, open_buffers, output_name
from nvfp4.gpu.device_memory import Gate, allocate
from nvfp4.problems.nvfp4_gemv.extras import names
from nvfp4.problems.nvfp4_gemv.layout import layouts
from nvfp4.records.ranges import Ranges

cpu = torch.device("cpu")
ROOT = Path(__file__).resolve().parents[1]


def test_there_is_a_buffer_for_every_tensor_and_for_the_output() -> None:
    buffers = create_buffers(sizes(130, 128, 2), cpu)
    assert set(buffers.tensors) == {*names, output_name}
    for name, layout in layouts(130, 128, 2).items():
        assert buffers.tensors[name].numel() == layout.nbytes
    assert buffers.tensors[output_name].numel() == 2304  # 130 * 2 * 8, in steps of 256
    buffers.close()


def test_what_one_side_writes_the_other_reads() -> None:
    ours = create_buffers(sizes(64, 64, 1), cpu)
    assert ours.fd is not None
    theirs = open_buffers(sizes(64, 64, 1), cpu, os.dup(ours.fd))
    for number, name in enumerate(ours.tensors):
        ours.tensors[name].fill_(number)
        assert (theirs.tensors[name] == number).all()
    theirs.tensors[output_name].fill_(99)
    assert (ours.tensors[output_name] == 99).all()
    ours.close()
    theirs.close()


@pytest.mark.parametrize("m", [3, 2048])
def test_every_tensor_is_aligned_as_torch_aligns_and_lies_between_unused_pages(m: int) -> None:
    """At 2048 rows sizes are whole pages."""
    buffers = create_buffers(sizes(m, 256, 1), cpu)
    ranges = sorted((each.data_ptr(), each.numel()) for each in buffers.tensors.values())
    assert all(start % mmap.PAGESIZE == 512 for start, _ in ranges)
    for (start, nbytes), (following, _) in pairwise(ranges):
        assert following - (start + nbytes) >= mmap.PAGESIZE
    assert all(each.untyped_storage().nbytes() == each.nbytes for each in buffers.tensors.values())
    buffers.close()


def test_closing_gives_the_descriptor_back_and_may_be_repeated() -> None:
    buffers = create_buffers(sizes(1, 64, 1), cpu)
    fd = buffers.fd
    assert fd is not None
    buffers.close()
    buffers.close()
    assert buffers.tensors == {}
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(fd)


@pytest.mark.gpu
def test_a_cuda_allocation_is_opened_in_another_process() -> None:
    device = torch.device("cuda", 0)
    buffers = create_buffers(sizes(128, 64, 1), device)
    buffers.tensors["a"].copy_(torch.arange(128 * 32, device=device).to(torch.uint8))
    torch.cuda.synchronize()
    assert buffers.fd is not None
    program = (
        "import sys, torch\n"
        "from nvfp4.gpu.buffers import open_buffers\n"
        "device = torch.device('cuda', 0)\n"
        f"buffers = open_buffers({sizes(128, 64, 1)}, device, int(sys.argv[1]))\n"
        "buffers.tensors['output'][:256].copy_(buffers.tensors['a'][:256].flip(0))\n"
        "torch.cuda.synchronize()\n"
    )
    run_python("-c", program, str(buffers.fd), pass_fds=[buffers.fd], check=True)
    expected = torch.arange(256, device=device).to(torch.uint8).flip(0)
    assert torch.equal(buffers.tensors[output_name][:256], expected)


@pytest.mark.skipif(not hasattr(os, "memfd_create"), reason="there are no sealed files")
@pytest.mark.parametrize("size", [0, 1 << 30])
def test_the_other_side_cannot_change_the_size_of_the_file(size: int) -> None:
    buffers = create_buffers(sizes(8, 64, 1), torch.device("cpu"))
    assert buffers.fd is not None
    with pytest.raises(PermissionError):
        os.ftruncate(buffers.fd, size)
    buffers.close()


# A gate in device memory holds up what another process has queued.

waiting = """
import sys, torch
from nvfp4.gpu.device_memory import open_memory
from nvfp4.gpu.device_memory import WaitingSide

gate, fd = map(int, sys.argv[1:])
device = torch.device("cuda", 0)
numbers = open_memory(fd, 16, device)(0, 16).view(torch.int32)
side = WaitingSide(gate, device)
numbers.add_(0)  # loads the kernel, which cannot be done while the device waits
side.wait()
numbers.add_(1)
print("queued", flush=True)
torch.cuda.synchronize()
print("done", flush=True)
"""


@pytest.mark.gpu
def test_what_another_process_queues_behind_a_gate_waits_until_it_opens() -> None:
    device = torch.device("cuda", 0)
    gate = Gate(device)
    fd, place = allocate(16, device)
    numbers = place(0, 16).view(torch.int32).zero_()
    torch.cuda.synchronize()
    command = ["-c", waiting, str(gate.fd), str(fd)]
    with start_python(*command, pass_fds=[gate.fd, fd], stderr=subprocess.STDOUT) as process:
        assert process.stdout
        assert process.stdout.readline() == "queued\n"
        time.sleep(0.2)
        numbers.fill_(10)
        assert numbers.tolist() == [10] * 4
        gate.open()
        torch.cuda.synchronize()
        assert process.stdout.readline() == "done\n"
    assert numbers.tolist() == [11] * 4


# Sets of addresses.


def test_ranges_are_what_sets_of_numbers_would_be() -> None:
    draw = random.Random(7)
    for _ in range(200):
        ranges, numbers = Ranges(), set()
        for _ in range(draw.randrange(12)):
            start = draw.randrange(40)
            end = start + 1 + draw.randrange(9)
            if draw.random() < 0.7:
                ranges.add(start, end)
                numbers |= set(range(start, end))
            else:
                ranges.remove(start, end)
                numbers -= set(range(start, end))
        assert [n for a, b in ranges for n in range(a, b)] == sorted(numbers)
        assert all(b < c for (_, b), (c, _) in zip(list(ranges), list(ranges)[1:], strict=False))
        start = draw.randrange(30)
        asked = set(range(start, start + 15))
        inside = {n for a, b in ranges.within(start, start + 15) for n in range(a, b)}
        outside = {n for a, b in ranges.outside(start, start + 15) for n in range(a, b)}
        assert inside == asked & numbers
        assert outside == asked - numbers


def test_a_python_that_lies_at_one_address_has_no_heap_where_its_workers_have_theirs() -> None:
    """As Debian's and Ubuntu's. Its own program is left out, as no tensor lies in it."""
    python = "/usr/bin/python3"
    if not Path(python).exists() or Path(python).read_bytes()[16] != 2:  # ET_EXEC
        pytest.skip("there is no such Python")
    script = "from nvfp4.records.ranges import *; print([fixed_loader(), taken_ranges()])"

    def said(*command: str) -> Any:
        text = subprocess.check_output([*command, python, "-c", script], text=True, cwd=ROOT)
        return ast.literal_eval(text)

    loader, worker = said()
    low = [(start, end) for start, end in worker if start < 1 << 32]
    assert loader and low
    assert not [1 for a, b in low for c, d in said(*loader)[1] if a < d and c < b]
