"""The judge's side of a referee's process, for a problem of the user's."""

import itertools
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import torch

from nvfp4.contract.referee import CasePlan, Checked, Drawn, Output, Published
from nvfp4.contract.tree import Tree, TreeError, parts, places, room_for, tree_of
from nvfp4.gpu import buffers as shared
from nvfp4.gpu.device_memory import default_device
from nvfp4.gpu.timing import wait_until_idle
from nvfp4.judge.opened_case import OutOfTime
from nvfp4.judge.submission_process import CaseFailed, start_peer
from nvfp4.records import referee_messages as messages
from nvfp4.records.cases import Case
from nvfp4.records.channel import BadMessage, ChannelClosed, ChannelTimeout
from nvfp4.records.files import clear
from nvfp4.records.messages import Done, Failed, Greeting, pack, unpack
from nvfp4.records.options import Options
from nvfp4.sandbox import isolation

T = TypeVar("T")


class RefereeFailed(CaseFailed):
    """The problem's own code failed; nothing is known of the submission."""

    def __init__(self, message: str) -> None:
        super().__init__("not_judged.problem", message)


_widest_bytes = 8
"""Bytes of the widest element of an output."""

_least_room_bytes = 1 << 20

_SEEDS = 1 << 17
"""Number of other seeds that a call may have, so that few repeat among some hundred calls."""


class FolderReferee:
    """See ``contract.referee.Referee``."""

    draws_full_range = False
    repeatable = False
    withholds = False

    def __init__(self, files: Mapping[str, bytes], options: Options) -> None:
        """Start the process of the problem's code. files: the problem's files, by name. Raises
        RefereeFailed."""
        self._deadline = time.monotonic() + options.timeout_s
        self._lock = threading.RLock()  # inputs are drawn ahead in a thread of their own
        self._numbers = itertools.count()
        self._requests = 0
        self._ready: tuple[Case, messages.Draw, CasePlan] | None = None
        self._there: set[int] = set()
        """Numbers of the draws that the referee's process holds."""
        self._plans: dict[tuple[str, bool], CasePlan] = {}
        self._repeats: dict[tuple[str, bool], bool] = {}
        """Whether a case has the same inputs for every seed, as its first two draws tell."""
        self._first: dict[tuple[str, bool], tuple[int, str]] = {}
        """A case's seed, or the draw's number if it has none, and what identifies the inputs."""
        self._published: dict[str, Published] = {}
        self._scratch = Path(tempfile.mkdtemp(prefix="nvfp4-"))
        for name, content in files.items():
            (self._scratch / name).write_bytes(content)
        self.draws_full_range = b"def generate_second_input" in files.get("extras.py", b"")
        self._kept: dict[tuple[bool, str], tuple[shared.Sizes, shared.SharedBuffers]] = {}
        """The memory shared last, by whether it is for an output and by its device."""
        self._options = options
        self._preparation: messages.Prepare | None = None
        self._start()

    def _start(self) -> None:
        main, folder = self._scratch / "reference.py", self._scratch
        started = start_peer("nvfp4.referee", main, self._options, folder)
        self._process, self._channel, self._out, self._errors = started
        self._greeted = False

    def close(self) -> None:
        """End the process, also while it draws."""
        self._preparation = None
        self._stop()
        for _, buffers in self._kept.values():
            buffers.close()
        clear(self._scratch)

    def _stop(self) -> None:
        isolation.kill_tree(self._process)
        self._channel.close()

    def _start_again(self) -> None:
        """Start another process in place of one that has ended, for the cases to come."""
        preparation, self._preparation, self._ready = self._preparation, None, None
        if preparation is not None:
            self._stop()
            self._there.clear()
            self._start()
            self._ask(preparation, messages.Prepared)
            self._preparation = preparation

    def prepare(self, cases: Sequence[Case]) -> None:
        """Import the problem, and refuse cases that do not fit; the time limit begins. Raises
        RefereeFailed."""
        self._deadline = time.monotonic() + self._options.timeout_s
        preparation = messages.Prepare([each.arguments for each in cases])
        said = self._ask(preparation, messages.Prepared)
        self._preparation = preparation
        for case, least, figures in zip(cases, said.least_bytes, said.figures, strict=True):
            self._published[case.spec] = Published(least, figures)

    def published(self, case: Case) -> Published:
        return self._published.get(case.spec, Published())

    def refuse(self, case: Case) -> None:
        """Refuse nothing here: ``prepare`` refuses all cases together."""

    def _ask(self, request: object, answer: type[T], fd: int | None = None) -> T:
        self._requests += 1
        try:
            if not self._greeted:
                unpack(self._channel.receive(self._left_s())[0], Greeting)
                self._greeted = True
            self._channel.send({**pack(request), "id": self._requests}, fd)
            message, _ = self._channel.receive(self._left_s())
            if message.get("id") != self._requests:
                raise BadMessage("an answer that was not asked for")
            found: Any = unpack(message, answer, Failed)
        except ChannelTimeout:
            raise OutOfTime from None
        except (ChannelClosed, BadMessage) as error:
            last = (self._errors.text() or self._out.text()).splitlines()[-1:] or [repr(error)]
            self._start_again()
            if last[0].startswith("it was stopped: "):  # by what watches its memory
                raise CaseFailed("machine.limit", f"the problem's process: {last[0]}") from None
            raise RefereeFailed(f"the problem's own code ended its process: {last[0]}") from None
        if isinstance(found, Failed):
            raise RefereeFailed(found.message)
        return found

    def _left_s(self) -> float:
        return max(0.1, self._deadline - time.monotonic())

    def _draw(self, case: Case, seed: int) -> tuple[messages.Draw, CasePlan]:
        arguments = dict(case.arguments)
        if "seed" in arguments and seed != case.seed:
            arguments["seed"] = _near(case.seed, seed)
        request = messages.Draw(arguments, case.full_range, next(self._numbers))
        found = self._ask(request, messages.CaseDrawn)
        self._there.add(request.number)
        plan = _plan(found, self.published(case).least_bytes)
        self._plans.setdefault((case.spec, case.full_range), plan)
        return request, plan

    def plan(self, case: Case) -> CasePlan:
        with self._lock:
            key = case.spec, case.full_range
            if key not in self._plans:
                self._ready = case, *self._draw(case, case.seed)
            return self._plans[key]

    def draw(self, case: Case, seed: int) -> Drawn:
        with self._lock:
            if self._ready is not None and self._ready[0] == case and seed == case.seed:
                _, request, plan = self._ready
                self._ready = None
            else:
                request, plan = self._draw(case, seed)
            tree, device = plan.inputs, default_device()
            held: dict[str, torch.Tensor] = {}
            for host in (False, True):
                sizes = shared.host_sizes_of(tree) if host else shared.sizes_of(tree, 0)
                if not sizes:
                    continue
                buffers = self._shared(sizes, torch.device("cpu") if host else device)
                self._ask(messages.Put(request.number, host), Done, buffers.fd)
                held |= {name: each.clone() for name, each in buffers.tensors.items()}
            storages = [held[name] for name in tree.names]
            repeats = self._are_repeated(case, request, plan, storages)
            return Drawn(tree, storages, request, plan, repeats)

    redraw = draw

    def _are_repeated(
        self, case: Case, request: messages.Draw, plan: CasePlan, storages: list[torch.Tensor]
    ) -> bool:
        """Return whether the inputs of a case are known to be the same for every seed."""
        key = case.spec, case.full_range and self.draws_full_range
        if key not in self._repeats:
            seed = request.arguments.get("seed", request.number)
            set_ones = [each for n, each in enumerate(storages) if n not in plan.noise]
            digest = _digest(plan.inputs, set_ones)
            other, before = self._first.setdefault(key, (seed, digest))
            if seed == other:
                return False
            self._repeats[key] = digest == before and any(map(len, set_ones))
        return self._repeats[key]

    def _shared(self, sizes: shared.Sizes, device: torch.device) -> shared.SharedBuffers:
        """Return memory that the referee's process opens, the same one for the same sizes.

        It is not freed between calls: the driver clears what is freed, for milliseconds, which
        slows down a timed call.
        """
        kind = shared.output_name in sizes, device.type
        known, buffers = self._kept.pop(kind, ({}, shared.SharedBuffers({})))
        if known != sizes:
            buffers.close()
            buffers = shared.create_buffers(sizes, device)
        self._kept[kind] = sizes, buffers
        wait_until_idle(device)  # nothing reads what they held
        return buffers

    def expect(self, drawn: Drawn) -> Drawn:
        return drawn

    def check(self, drawn: Drawn, output: Output, explain: bool = False) -> Checked:
        nbytes = places(output.tree)[-1]
        buffers = self._shared({shared.output_name: nbytes}, default_device())
        parts_there = parts(output.tree, buffers.tensors[shared.output_name])
        for there, storage in zip(parts_there, output.storages, strict=True):
            there.copy_(storage)
        wait_until_idle(default_device())
        again: messages.Draw = drawn.contents
        request = messages.Check(again.number, output.tree.to_plain(), nbytes, output.noise)
        with self._lock:
            if again.number not in self._there:  # drawing other inputs has ended the process
                self._ask(again, messages.CaseDrawn)
            found = self._ask(request, messages.OutputChecked, buffers.fd)
        return Checked(**vars(found))

    def is_right(self, drawn: Drawn, output: Output) -> bool:
        return self.check(drawn, output).passed

    def withhold(
        self, plan: CasePlan, storages: list[torch.Tensor]
    ) -> list[tuple[torch.Tensor, torch.Tensor]]:
        return []


def _near(seed: int, other: int) -> int:
    """Return a seed that is near another one and differs by the digits of `other`.

    Inputs stay alike even if a generator adds the seed to values, as that of `sort` does.
    """
    offset = 1 + other % _SEEDS
    return seed + offset if seed + offset < 2**31 else seed - offset


def _digest(tree: Tree, storages: Sequence[torch.Tensor]) -> str:
    """Return a text that is another one for other inputs, except by accident."""
    sums: list[int] = []
    for storage in storages:
        words = storage[: len(storage) // 4 * 4].view(torch.int32)
        for part in words.split(1 << 22):
            sums.append(int((part * torch.arange(1, 1 + len(part), device=part.device)).sum()))
        sums += storage[words.nbytes :].tolist()
    return f"{tree} {sums}"


def _plan(found: messages.CaseDrawn, least_bytes: int) -> CasePlan:
    inputs, expected = _tree(found.inputs), _tree(found.expected)
    outputs, noise = frozenset(found.outputs), frozenset(found.noise)
    sizes = [_widest_bytes * torch.Size(leaf.shape).numel() for leaf in expected.leaves]
    room_bytes = max(room_for(sizes), _least_room_bytes)
    checks = found.checks_shape
    return CasePlan(inputs, outputs, expected, room_bytes, least_bytes, checks, noise=noise)


def _tree(plain: dict[str, Any]) -> Any:
    try:
        return tree_of(plain)
    except TreeError as error:
        raise RefereeFailed(f"nvfp4 does not hand on the problem's data: {error}") from None
