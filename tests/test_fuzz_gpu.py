"""Nonsense for the executor.

What a worker asks of it, its memory map and its PTX are changed at random. The executor may refuse
what comes of it with a fault. Whatever else happens is a finding: an exception, an answer that does
not come, a byte of the inputs that changes. MINUTES=10 in the environment goes on for so long, SEED
takes another course.
"""

import copy
import json
import mmap
import os
import random
import socket
import time
from collections import Counter
from typing import Any

import torch

from gemv import plan_of, sizes
from nvfp4.gpu.buffers import SharedBuffers, create_buffers, mapped_bytes, offsets, output_name
from nvfp4.judge.executor import Executor, ExecutorFailed
from nvfp4.judge.opened_case import described
from nvfp4.records import gpu_messages
from nvfp4.records.channel import BadMessage, Channel, ChannelClosed, ChannelTimeout
from nvfp4.records.messages import Begin, Done, End, Ended, Opened, OpenSession, pack, unpack

ptx = """\
.version 8.6
.target sm_100a
.address_size 64
.global .align 4 .u32 counter;
.const .align 4 .b8 table[16] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16};
.visible .entry work(
  .param .u64 work_param_0,
  .param .u64 work_param_1,
  .param .u64 work_param_2
)
{
  .reg .pred %p<4>;
  .reg .b16 %rs<4>;
  .reg .b32 %r<16>;
  .reg .b64 %rd<16>;
  .shared .align 16 .b8 kept[256];
  ld.param.u64 %rd1, [work_param_0];
  ld.param.u64 %rd2, [work_param_1];
  ld.param.u64 %rd3, [work_param_2];
  mov.u32 %r1, %tid.x;
  mul.wide.u32 %rd4, %r1, 4;
  add.s64 %rd5, %rd1, %rd4;
  ld.global.u32 %r2, [%rd5];
  mov.u32 %r3, kept;
  shl.b32 %r4, %r1, 2;
  add.s32 %r5, %r3, %r4;
  st.shared.u32 [%r5], %r2;
  bar.sync 0;
  ld.shared.u32 %r6, [%r5];
  ld.const.u32 %r7, [table];
  xor.b32 %r6, %r6, %r7;
  add.s64 %rd6, %rd2, %rd4;
  st.global.u32 [%rd6], %r6;
  setp.gt.u32 %p1, %r1, 15;
  @%p1 bra $done;
  mov.u64 %rd7, counter;
  atom.global.add.u32 %r8, [%rd7], 1;
  mul.wide.u32 %rd8, %r1, 2;
  add.s64 %rd9, %rd3, %rd8;
  cvt.u16.u32 %rs1, %r6;
  st.global.u16 [%rd9], %rs1;
$done:
  ret;
}
"""

shape = (128, 64, 1)
longest_kernel_s, longest_answer_s = 1.0, 20.0
_numbers = [-1, 0, 1, 3, 255, 4095, *(1 << n for n in (12, 16, 31, 40, 63, 80)), (1 << 47) - 1]
_values: list[Any] = [None, True, "", "x" * 5000, "\ud800", 0.5, [], {}, [[]], "00", "zz", "work"]


Request = dict[str, Any]


class Fuzzer:
    """Makes bad requests of good ones. counts: how often each outcome was."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.counts: Counter[str] = Counter()
        self.findings: list[str] = []
        self._executor = Executor()
        self._buffers: SharedBuffers = create_buffers(sizes(*shape), torch.device("cpu"))
        self._parts, self._nbytes = offsets(sizes(*shape)), mapped_bytes(sizes(*shape))

    def stop(self) -> None:
        """Ends the executor."""
        self._executor.stop()
        self._buffers.close()

    def run(self, seconds: float) -> bool:
        """Goes on for so long; whether nothing was found."""
        self._one(ptx, *self._good(ptx))
        end = time.monotonic() + seconds
        if self.counts != {"ran": 1}:
            self.findings.append(f"the good requests themselves: {dict(self.counts)}")
        while time.monotonic() < end and not self.findings:
            text = self._mutated_text() if self.random.random() < 0.5 else ptx
            base, requests = self._good(text)
            for _ in range(self.random.choice((0, 1, 1, 1, 2, 4))):
                self._mutate(requests)
            self._one(text, base, requests)
        return not self.findings

    def _good(self, text: str) -> tuple[int, list[Request]]:
        """A launch on a region of its own, whose addresses nobody else has."""
        base = 0x2000_0000_0000 + self.random.randrange(1 << 20) * (1 << 20)
        scratch, c = base + (1 << 30) + 64, base + self._parts["c"]
        parameters = [base + self._parts["a"], scratch, c]
        start = gpu_messages.Start(
            text=0, kernel="work", grid=(1, 1, 1), block=(64, 1, 1), cluster=(1, 1, 1),
            shared_bytes=0, stream=0, programmatic=False, waited=0, alongside=False, trial=False,
            parameters=[each.to_bytes(8, "little").hex() for each in parameters], place=[3, 4],
            notes=[("code", "message", None, "submission.py", 3)], with_suffix=None,
        )  # fmt: skip
        requests = [
            gpu_messages.AddText(len(text.encode("utf-8", "replace"))),
            gpu_messages.SetRegions([("a tensor", scratch, 256, True, ([64], [4], 0, "int8"))], []),
            gpu_messages.Write([(scratch, 256), (c, 32)]),
            gpu_messages.FindVariable(0, "counter"),
            gpu_messages.Examine(0, "work"),
            start,
            gpu_messages.AddNote("work", ("code", "message", None, None, None)),
            gpu_messages.Copy(scratch, c, 32),
            gpu_messages.Read(scratch, 256, []),
            gpu_messages.HandOver(c, 0, 2, [128, 1, 1], [2, 2, 256], 0, 0, []),
        ]
        return base, [pack(each) for each in requests]

    def _mutated_text(self) -> str:
        lines = ptx.splitlines()
        for _ in range(self.random.choice((1, 1, 2, 3))):
            place = self.random.randrange(len(lines))
            kind = self.random.randrange(5)
            if kind == 0:
                del lines[place]
            elif kind == 1:
                lines.insert(place, self.random.choice(lines))
            elif kind == 2:
                words = lines[place].split(" ")
                others = [*" ".join(lines).split(" "), "%rd99", "0xFFFFFFFFFFFFFFFF", ".v4", "{"]
                words[self.random.randrange(len(words))] = self.random.choice(others)
                lines[place] = " ".join(words)
            elif kind == 3:
                text = lines[place]
                at = self.random.randrange(len(text) + 1)
                lines[place] = text[:at] + chr(self.random.randrange(32, 127)) + text[at + 1 :]
            else:
                other = self.random.randrange(len(lines))
                lines[place], lines[other] = lines[other], lines[place]
        return "\n".join(lines) + "\n"

    def _mutate(self, call: list[Request]) -> None:
        """Changes one value somewhere in requests."""
        holder: Any = call
        while True:
            keys = list(holder) if isinstance(holder, dict) else list(range(len(holder)))
            if not keys:
                return
            key = self.random.choice(keys)
            inner = holder[key]
            if not isinstance(inner, (dict, list)) or not inner or self.random.random() < 0.1:
                break
            holder = inner
        kind = self.random.randrange(6)
        if kind == 0:
            holder[key] = self.random.choice(_values)
        elif kind == 1:
            holder[key] = self.random.choice(_numbers)
        elif kind == 2 and type(inner) is int:
            holder[key] = inner + self.random.choice((-4096, -64, -1, 1, 7, 64, 4096, self._nbytes))
        elif kind == 3 and isinstance(inner, str) and inner:
            at = self.random.randrange(len(inner))
            holder[key] = inner[:at] + self.random.choice("0123456789abcdef%_") + inner[at + 1 :]
        elif kind == 4 and isinstance(holder, list):
            holder.insert(0, copy.deepcopy(self.random.choice(holder)))
        elif isinstance(holder, list):
            del holder[key]
        else:
            holder[key] = copy.deepcopy(self.random.choice(list(holder.values())))

    def _one(self, text: str, base: int, requests: list[Request]) -> None:
        """A session with these requests."""
        for name, tensor in self._buffers.tensors.items():
            tensor.fill_(7 if name == "c" else 0x5A)
        before = self._file()
        ours, theirs = socket.socketpair()
        said = "ran"
        try:
            with theirs:
                self._ask(OpenSession([], "", "", "", True), Opened, theirs.fileno())
            with ours:
                self._ask(self._begin(base), Done, self._buffers.fd)
                link = Channel(ours, takes_fds=True)
                _, window = link.receive(longest_answer_s)
                assert window is not None
                with mmap.mmap(window, gpu_messages.window_bytes) as mapped:
                    data = text.encode("utf-8", "replace")
                    mapped[: len(data)] = data
                    mapped[len(data) : len(data) + 512] = bytes(512)
                    for request in requests:
                        link.send(request)
                        answer = unpack(link.receive(longest_answer_s)[0], *gpu_messages.ANSWERS)
                        said = "fault" if isinstance(answer, gpu_messages.Fault) else said
                os.close(window)
                self._ask(End(), Ended)
        except (ExecutorFailed, ChannelClosed, ChannelTimeout, BadMessage) as error:
            self._found("the executor", error, requests, text)
            return
        if self._masked(before) != self._masked(self._file()):
            self._found("a byte outside", AssertionError(said), requests, text)
        self.counts[said] += 1

    def _ask(self, request: object, answer: type, fd: int | None = None) -> None:
        self._executor.ask(request, answer, longest_answer_s, fd)

    def _begin(self, base: int) -> Begin:
        # The first one compiles the emulator's loops.
        deadline = time.monotonic() + (longest_kernel_s if self.counts else longest_answer_s)
        plan, place = plan_of(*shape), self._parts[output_name]
        buffers = described(plan, self._parts)
        return Begin(base, buffers, self._nbytes, place, plan.room_bytes, deadline)

    def _file(self) -> bytes:
        assert self._buffers.fd is not None
        return os.pread(self._buffers.fd, self._nbytes, 0)

    def _masked(self, content: bytes) -> bytes:
        """All but c and the output, which alone may change."""
        masked = bytearray(content)
        for name in ("c", output_name):
            tensor = self._buffers.tensors[name]
            start = self._parts[name]
            masked[start : start + tensor.numel()] = bytes(tensor.numel())
        return bytes(masked)

    def _found(self, where: str, error: Exception, call: Any, text: str) -> None:
        self.findings.append(f"{where}: {error!r}\n{json.dumps(call)[:3000]}\n{text}")


def test_random_requests_lead_to_no_traceback_no_hang_and_no_byte_outside() -> None:
    fuzzer = Fuzzer(int(os.environ.get("SEED", "20261121")))
    try:
        assert fuzzer.run(60 * float(os.environ.get("MINUTES", "0.05"))), fuzzer.findings
    finally:
        fuzzer.stop()
    assert {"ran", "fault"} <= set(fuzzer.counts)
