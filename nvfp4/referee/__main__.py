"""Runs a problem's own code for the judge, confined as a submission is.

    python -m nvfp4.referee SOCKET REFERENCE

The current folder holds the problem's files. The submission never meets this process.
"""

import os
import socket
import sys
from collections import OrderedDict
from functools import cached_property
from typing import TYPE_CHECKING, Any

from nvfp4.records import referee_messages as asked
from nvfp4.records.channel import Channel
from nvfp4.records.messages import Done, Failed, Greeting, pack, serve
from nvfp4.records.options import options_of_environment
from nvfp4.sandbox.confinement import confine

if TYPE_CHECKING:
    from nvfp4.referee.problem import FolderProblem

_most_bytes = 2 << 30
"""Limit on the inputs that are kept for a check.

The last three are kept at any size: those of the call, of a call made before that is checked, and
of the next call. A GPU keeps two, as the next ones are not drawn ahead.
"""


class Service:
    """Answers the judge."""

    def __init__(self) -> None:
        import torch

        from nvfp4.capture import standin
        from nvfp4.capture.standin.scaled_mm import multiply_fp4_here

        self._on_gpu = torch.cuda.is_available()
        self._device = torch.device("cuda" if self._on_gpu else "cpu")
        if self._on_gpu:
            multiply_fp4_here()
            self._on_host: Any = lambda tensor: tensor
            self._adopt: Any = lambda tensor, device: tensor
        else:
            standin.install(options_of_environment().arch)
            self._on_host = standin.host_view
            self._adopt = lambda tensor, device: (
                standin.adopt(tensor) if device == "cuda" else tensor
            )
        torch.seed()  # what a problem draws without a seed is not to be foreseen
        self._drawn: OrderedDict[int, Any] = OrderedDict()
        self._asked: dict[int, asked.Draw] = {}

    def answer(self, request: Any, fd: int | None) -> object:
        """Carry out a request; what the problem's code raises becomes a Failed."""
        from nvfp4.contract.tree import TreeError
        from nvfp4.referee.problem import ProblemFailed

        try:
            if isinstance(request, asked.Prepare):
                return self._prepare(request)
            if isinstance(request, asked.Draw):
                return self._draw(request)
            assert fd is not None
            if isinstance(request, asked.Put):
                return self._put(request, fd)
            return self._check(request, fd)
        except ProblemFailed as failed:
            return Failed(f"the problem's own code failed: {failed}", {})
        except TreeError as error:
            return Failed(f"nvfp4 does not hand on the problem's data: {error}", {})

    @cached_property
    def _problem(self) -> "FolderProblem":
        from nvfp4.referee.problem import FolderProblem

        return FolderProblem(self._on_host, self._adopt)

    def _prepare(self, request: asked.Prepare) -> asked.Prepared:
        problem = self._problem
        for each in request.cases:
            problem.refuse(each)
        least_bytes = [problem.least_bytes(each) for each in request.cases]
        return asked.Prepared(least_bytes, [problem.figures(each) for each in request.cases])

    def _draw(self, request: asked.Draw) -> asked.CaseDrawn:
        problem, arguments = self._problem, request.arguments
        found = problem.draw(arguments, request.full_range)
        self._drawn[request.number], self._asked[request.number] = found, request
        held = [sum(map(len, each.storages)) for each in self._drawn.values()]
        while len(held) > (2 if self._on_gpu else 3) and sum(held) > _most_bytes:
            self._drawn.popitem(last=False)
            held.pop(0)
        inputs, expected = found.tree.to_plain(), problem.expected_tree(found).to_plain()
        outputs, noise = sorted(found.outputs), sorted(found.noise)
        return asked.CaseDrawn(inputs, expected, problem.checks_shape, outputs, noise)

    def _put(self, request: asked.Put, fd: int) -> Done:
        import torch

        from nvfp4.gpu.buffers import host_sizes_of, open_buffers, sizes_of
        from nvfp4.gpu.timing import wait_until_idle

        found = self._drawn[request.number]
        tree = found.tree
        sizes = host_sizes_of(tree) if request.host else sizes_of(tree, 0)
        buffers = open_buffers(sizes, torch.device("cpu") if request.host else self._device, fd)
        for name, storage in zip(tree.names, found.storages, strict=True):
            if name in sizes:
                buffers.tensors[name].copy_(storage)
        wait_until_idle(self._device)
        buffers.close()
        return Done()

    def _check(self, request: asked.Check, fd: int) -> asked.OutputChecked:
        from nvfp4.contract.tree import build, parts, tree_of
        from nvfp4.gpu.buffers import open_buffers, output_name

        if request.number not in self._drawn:  # checked before, and dropped
            self._draw(self._asked[request.number])
        inputs, tree = self._drawn[request.number], tree_of(request.output)
        buffers = open_buffers({output_name: request.nbytes}, self._device, fd)
        raw = buffers.tensors[output_name].clone()
        buffers.close()
        # Returned tensors are the device's, whatever the record says.
        output = build(tree, parts(tree, raw), lambda tensor, device: self._adopt(tensor, "cuda"))
        passed, message = self._problem.check(inputs, output)
        self._drawn.move_to_end(request.number, last=False)  # what was checked goes first
        if not passed:
            unset = self._problem.never_written(output, request.noise)
            message = "\n".join(filter(None, [message, unset]))
        why = "" if passed else self._problem.rounding_explains(inputs, output)
        if why:
            message = f"{message}\nthe order of a sum may be why: the output is {why}"
        return asked.OutputChecked(passed, message, bool(why))


def main() -> None:
    """Serve the judge until it is gone."""
    channel = Channel(socket.socket(fileno=int(sys.argv[1])), takes_fds=True)
    channel.send(pack(Greeting(confine(closed=True))))
    sys.path[:0] = [os.getcwd()]
    serve(channel, Service().answer, asked.Prepare, asked.Draw, asked.Put, asked.Check)


if __name__ == "__main__":
    main()
