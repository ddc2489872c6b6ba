"""Search a submission's declared space on the present GPU, by the judge's timer.

    python scripts/kernel_tune.py                          the contest's three shapes
    python scripts/kernel_tune.py --shape 4096,4096,1 --calls 100
    python scripts/kernel_tune.py --state tune.json        goes on where an earlier run stopped
    python scripts/kernel_tune.py --write                  puts the fastest into the submission

A submission declares its space by `configurations(m, k, l, capability)`, runs one of them by
`gemv(data, configuration)` and keeps the tuned ones in `tables`. Candidates take turns on a cold L2
cache; those that are surely slower are dropped early; a wrong one is never ranked. Nothing is
written without --write.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import pathlib
import sys
from collections.abc import Mapping
from typing import Any

import torch

root = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(root))
import timing  # noqa: E402
from scripts.kernel_inputs import Shape, contest_shapes, expected, inputs, mismatch  # noqa: E402
from scripts.kernel_search import Estimate, Search  # noqa: E402
from scripts.kernel_table import with_entry  # noqa: E402
from scripts.sass import load_submission, shape_of  # noqa: E402


class State:
    """Timings kept in a JSON file, {GPU: {shape: {configuration: [microseconds]}}}."""

    def __init__(self, path: pathlib.Path | None, device: str) -> None:
        self.path = path
        self.all = json.loads(path.read_text()) if path and path.exists() else {}
        self.shapes: dict[str, dict[str, list[float]]] = self.all.setdefault(device, {})

    def times(self, shape: Shape) -> dict[str, list[float]]:
        return self.shapes.setdefault(",".join(map(str, shape)), {})

    def save(self) -> None:
        if self.path:
            self.path.write_text(json.dumps(self.all))


def fields_of(configuration: Any) -> list[int]:
    """The fields of a configuration in order."""
    return list(dataclasses.astuple(configuration))


def right_ones(submission: Any, shape: Shape, space: list[Any]) -> list[Any]:
    """The configurations that compile and give the right product."""
    data, raw = inputs(*shape, 2, 64)
    reference, magnitude = expected(raw)
    found = []
    for i, configuration in enumerate(space):
        print(f"\r{shape} compiling and checking {i + 1} of {len(space)}", end="", flush=True)
        data[6].fill_(float("nan"))
        out = submission.gemv(data, configuration)
        if mismatch(out, reference, magnitude)[1]:
            print(f"\n{configuration} is wrong and left out")
        else:
            found.append(configuration)
    print()
    return found


def tune(submission: Any, shape: Shape, state: State, calls: int) -> list[Estimate]:
    """The ranking of one shape's space."""
    capability = submission.compute_capability()
    space = right_ones(submission, shape, submission.configurations(*shape, capability))
    by_name = {"/".join(map(str, fields_of(c))): c for c in space}
    data, _ = inputs(*shape, 1)
    timer = timing.CudaTimer(torch.device("cuda"))

    def time_us(name: str) -> float:
        _, spent = timer.time(lambda: submission.gemv(data, by_name[name]))
        return spent.call_ns / 1e3

    def progress(done: int, alive: list[str], times: Mapping[str, list[float]]) -> None:
        print(f"{shape} {done} calls each, {len(alive)} of {len(times)} left")
        state.save()

    search = Search(time_us, calls=calls, times=state.times(shape))
    return [e for e in search.run(by_name, progress) if e.candidate in by_name]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("submission", nargs="?", type=pathlib.Path, default=root / "submission.py")
    parser.add_argument("--shape", action="append", help="m,k,l; the contest's three by default")
    parser.add_argument("--calls", type=int, default=50, help="timed calls of a contender")
    parser.add_argument("--state", type=pathlib.Path, help="JSON file to keep timings in")
    parser.add_argument("--write", action="store_true", help="change the submission's table")
    parser.add_argument("--top", type=int, default=8, help="lines printed a shape")
    arguments = parser.parse_args()
    submission = load_submission(arguments.submission)
    device = torch.cuda.get_device_name()
    state = State(arguments.state, device)
    table = max(t for t in submission.tables if t <= submission.compute_capability())
    for shape in [shape_of(text) for text in arguments.shape or []] or contest_shapes:
        ranking = tune(submission, shape, state, arguments.calls)
        print(f"{shape} on {device}: median and 95 % interval in us")
        for e in ranking[: arguments.top]:
            print(
                f"  {e.median_us:8.2f}  [{e.low_us:.2f}, {e.high_us:.2f}]"
                f"  {e.calls:3} calls  {e.candidate}"
            )
        if arguments.write:
            fields = [int(value) for value in ranking[0].candidate.split("/")]
            source = arguments.submission.read_text()
            arguments.submission.write_text(with_entry(source, table, shape, fields))
            print(f"  {ranking[0].candidate} written to {arguments.submission}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
