"""A gate in device memory holds up what another process has queued."""

import subprocess
import sys
import time

import pytest
import torch
from conftest import with_the_judge

from nvfp4.gpu.device_memory import Gate, allocate

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
    process = subprocess.Popen(
        [sys.executable, "-c", waiting, str(gate.fd), str(fd)],
        env=with_the_judge,
        pass_fds=[gate.fd, fd],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    with process:
        assert process.stdout
        assert process.stdout.readline() == "queued\n"
        time.sleep(0.2)
        numbers.fill_(10)
        assert numbers.tolist() == [10] * 4
        gate.open()
        torch.cuda.synchronize()
        assert process.stdout.readline() == "done\n"
    assert numbers.tolist() == [11] * 4
