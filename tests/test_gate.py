"""A gate in device memory holds up what another process has queued."""

from __future__ import annotations

import json
import subprocess
import sys
import time

import pytest
import torch
from conftest import with_the_judge

from buffers import export_tensor
from nvfp4.local.gate import Gate

waiting = """
import json, sys, torch
from buffers import import_tensor
from nvfp4.local.gate import WaitingSide

gate, handle = (json.loads(sys.stdin.readline()) for _ in range(2))
numbers = import_tensor(handle).view(torch.int32)
side = WaitingSide(gate)
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
    gate, numbers = Gate(device), torch.zeros(4, dtype=torch.int32, device=device)
    gate.shut()
    process = subprocess.Popen(
        [sys.executable, "-c", waiting],
        env=with_the_judge,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    with process:
        assert process.stdin
        assert process.stdout
        process.stdin.write(f"{json.dumps(gate.handle)}\n{json.dumps(export_tensor(numbers))}\n")
        process.stdin.flush()
        assert process.stdout.readline() == "queued\n"
        time.sleep(0.2)
        numbers.fill_(10)
        assert numbers.tolist() == [10] * 4
        gate.open()
        torch.cuda.synchronize()
        assert process.stdout.readline() == "done\n"
    assert numbers.tolist() == [11] * 4
