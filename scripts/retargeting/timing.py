"""submission.py native, rewritten from its own PTX (which changes nothing), and from sm_100a."""

from __future__ import annotations

import functools
import json
import statistics
import sys
from pathlib import Path
from typing import Any

import torch

from nvfp4 import retargeting
from nvfp4.cli.problem import load_problem, shape_of
from nvfp4.contract.reference import check_implementation, generate_full_range_input
from nvfp4.tuner.space import load_submission
from nvfp4.worker import timing
from scripts.retargeting.executor import host_us

CALLS = 200
MOST_APART = 0.01
SUBMISSION = Path("submission.py")


def variant(arch: str | None, inputs: list[Any]) -> tuple[Any, list[Any], dict[str, Any]]:
    """The submission compiled for all inputs, what was rewritten, and what its outputs are."""
    if arch is None:
        submission = load_submission(SUBMISSION)
        return submission, [], _states(submission, inputs)
    with retargeting.install(arch) as active:
        submission = load_submission(SUBMISSION)
        states = _states(submission, inputs)
        return submission, active.kernels(), states


def _states(submission: Any, inputs: list[Any]) -> dict[str, Any]:
    found = {}
    for data in inputs:
        data[6].fill_(torch.nan)
        right, message = check_implementation(data, submission.custom_kernel(data))
        found[f"{tuple(data[0].shape)}"] = "right" if right else message.splitlines()[0]
    return found


def main() -> int:
    """Prints a JSON object; 1 if the identity costs more than a percent or an output is wrong."""
    major, minor = torch.cuda.get_device_capability()
    own = f"sm_{major}{minor}a"
    shapes = [shape_of(line) for line in load_problem().benchmarks]
    inputs = [generate_full_range_input(s.m, s.k, s.l, seed=1111) for s in shapes]
    report: dict[str, Any] = {"variants": {}}
    compiled: dict[str, Any] = {}
    for name, arch in (("native", None), ("identity", own), ("sm_100a", "sm_100a")):
        try:
            compiled[name], kernels, states = variant(arch, inputs)
            report["variants"][name] = {"outputs": states, "kernels": kernels}
        except Exception as error:
            report["variants"][name] = {"error": f"{type(error).__name__}: {error}"[:1500]}
    timer = timing.CudaTimer(torch.device("cuda"))
    report["us"] = {}
    for shape, data in zip(shapes, inputs, strict=True):
        calls = {n: functools.partial(s.custom_kernel, data) for n, s in compiled.items()}
        times: dict[str, list[float]] = {name: [] for name in calls}
        for turn in range(CALLS):
            # Who comes first changes from turn to turn.
            names = list(calls)[turn % len(calls) :] + list(calls)[: turn % len(calls)]
            for name in names:
                times[name].append(timer.time(calls[name])[1].call_ns / 1e3)
        report["us"][str(shape)] = {
            name: {
                "mean": statistics.fmean(values),
                "median": statistics.median(values),
                "host": host_us(calls[name]),
            }
            for name, values in times.items()
        }
    means = {
        name: statistics.geometric_mean([row[name]["mean"] for row in report["us"].values()])
        for name in compiled
    }
    report["geomean_us"] = means
    apart = means["identity"] / means["native"] - 1 if {"identity", "native"} <= set(means) else 1.0
    report["identity_over_native"] = apart
    right = all(
        state == "right"
        for each in report["variants"].values()
        for state in each.get("outputs", {"": "missing"}).values()
    )
    report["passed"] = right and abs(apart) < MOST_APART
    print(json.dumps(report))
    return 0 if report["passed"] else 1


if __name__ == "__main__":
    sys.exit(main())
