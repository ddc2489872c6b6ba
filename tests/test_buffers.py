"""Buffers that two processes share: the same bytes, each tensor between unused pages."""

import mmap
import os
import subprocess
import sys
from itertools import pairwise

import pytest
import torch
from conftest import with_the_judge

from nvfp4.contract.layout import layouts, names
from nvfp4.gpu.buffers import create_buffers, open_buffers, output_name
from nvfp4.gpu.device_memory import allocate

cpu = torch.device("cpu")


def test_there_is_a_buffer_for_every_tensor_and_for_the_output() -> None:
    buffers = create_buffers(130, 128, 2, cpu)
    assert set(buffers.tensors) == {*names, output_name}
    for name, layout in layouts(130, 128, 2).items():
        assert buffers.tensors[name].numel() == layout.nbytes
    assert buffers.tensors[output_name].numel() == 130 * 2 * 8
    buffers.close()


def test_what_one_side_writes_the_other_reads() -> None:
    ours = create_buffers(64, 64, 1, cpu)
    assert ours.fd is not None
    theirs = open_buffers(64, 64, 1, cpu, os.dup(ours.fd))
    for number, name in enumerate(ours.tensors):
        ours.tensors[name].fill_(number)
        assert (theirs.tensors[name] == number).all()
    theirs.tensors[output_name].fill_(99)
    assert (ours.tensors[output_name] == 99).all()
    ours.close()
    theirs.close()


@pytest.mark.parametrize("m", [3, 2048])
def test_every_tensor_starts_on_a_page_and_lies_between_unused_ones(m: int) -> None:
    """At 2048 rows sizes are whole pages."""
    buffers = create_buffers(m, 256, 1, cpu)
    ranges = sorted((each.data_ptr(), each.numel()) for each in buffers.tensors.values())
    assert all(start % mmap.PAGESIZE == 0 for start, _ in ranges)
    for (start, nbytes), (following, _) in pairwise(ranges):
        assert following - (start + nbytes) >= mmap.PAGESIZE
    buffers.close()


def test_closing_gives_the_descriptor_back_and_may_be_repeated() -> None:
    buffers = create_buffers(1, 64, 1, cpu)
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
    buffers = create_buffers(128, 64, 1, device)
    buffers.tensors["a"].copy_(torch.arange(128 * 32, device=device).to(torch.uint8))
    torch.cuda.synchronize()
    assert buffers.fd is not None
    program = (
        "import sys, torch\n"
        "from nvfp4.gpu.buffers import open_buffers\n"
        "device = torch.device('cuda', 0)\n"
        "buffers = open_buffers(128, 64, 1, device, int(sys.argv[1]))\n"
        "buffers.tensors['output'][:256].copy_(buffers.tensors['a'][:256].flip(0))\n"
        "torch.cuda.synchronize()\n"
    )
    subprocess.run(
        [sys.executable, "-c", program, str(buffers.fd)],
        env=with_the_judge,
        pass_fds=[buffers.fd],
        check=True,
    )
    expected = torch.arange(256, device=device).to(torch.uint8).flip(0)
    assert torch.equal(buffers.tensors[output_name][:256], expected)


@pytest.mark.skipif(not hasattr(os, "memfd_create"), reason="there are no sealed files")
def test_the_other_side_cannot_cut_the_file_short() -> None:
    buffers = create_buffers(8, 64, 1, torch.device("cpu"))
    assert buffers.fd is not None
    with pytest.raises(PermissionError):
        os.ftruncate(buffers.fd, 0)
    buffers.close()


@pytest.mark.gpu
def test_device_memory_travels_by_descriptor() -> None:
    device = torch.device("cuda")
    fd, place = allocate(3 << 20, device)
    place(1 << 20, 16).fill_(7)
    torch.cuda.synchronize()
    program = (
        "import sys, torch\n"
        "from nvfp4.gpu.device_memory import open_memory\n"
        "place = open_memory(int(sys.argv[1]), 3 << 20, torch.device('cuda', 0))\n"
        "place(2 << 20, 16).copy_(place(1 << 20, 16) + 1)\n"
        "torch.cuda.synchronize()\n"
    )
    command = [sys.executable, "-c", program, str(fd)]
    subprocess.run(command, env=with_the_judge, pass_fds=[fd], check=True)
    os.close(fd)
    assert place(2 << 20, 16).tolist() == [8] * 16
