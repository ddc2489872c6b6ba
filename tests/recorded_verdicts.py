"""Verdicts from what the judge wrote in real runs, kept in tests/recorded/."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from bot import case

from nvfp4.cli import verdict as verdicts
from nvfp4.cli.judging.warnings import warnings_of
from nvfp4.records.failures import Finding, read_failure

folder = Path(__file__).resolve().parent / "recorded"
names = sorted(path.stem for path in folder.glob("*.json"))

h100_ns = {"mean": 25105.0, "median": 24976.0, "std": 320.0, "err": 32.0, "best": 24768.0}
h100_ns |= {"worst": 25984.0, "batched": 24785.0, "floor": 24497.0}
"""submission.py on an H100, m 7168, k 16384, l 1; see README.md."""

instructions = {"cvt.rn.f16x2.e2m1x2": 32, "fma.rn.f32x2": 8}
rewritten = {"kernel": "gemv", "source": "sm_100a", "target": "sm_90", "instructions": 412}
rewritten |= {"rewritten": instructions, "added": 310}


def recorded(name: str) -> dict[str, Any]:
    """mode, cases, exit_code, and the values of the result pipe."""
    return json.loads((folder / f"{name}.json").read_text(encoding="utf-8"))


def verdict_of(mode: str, cases: list[str], values: dict[str, str]) -> verdicts.Verdict:
    """The verdict that the command makes of the lines of one mode."""
    verdict = verdicts.Verdict(verdicts.Submission("mine.py", "0" * 64))
    verdict.device = verdicts.read_device(values)
    verdict.confined = verdicts.read_confinement(values)
    lines = list(enumerate(cases))
    if mode == "test":
        verdict.tests = [verdicts.read_test(values, index, line) for index, line in lines]
    else:
        verdict.benchmarks = [verdicts.read_benchmark(values, index, line) for index, line in lines]
    verdict.warnings = warnings_of(verdict)
    return verdict


def recorded_verdict(name: str) -> verdicts.Verdict:
    """A run of tests/recorded/ as a verdict."""
    run = recorded(name)
    return verdict_of(run["mode"], run["cases"], run["values"])


def timed_verdict(retargeted: bool = False) -> verdicts.Verdict:
    """A benchmark that was timed on an H100."""
    values = {f"benchmark.0.{name}": str(value) for name, value in h100_ns.items()}
    values |= {"benchmark.0.runs": "100", "benchmark.0.bytes": "66083840"}
    values |= {"benchmark.0.error_share": "0.25", "confined.clock": "behind a gate of the judge"}
    device = {"kind": "cuda", "name": "NVIDIA H100 80GB HBM3", "capability": "9.0"}
    device |= {"flush": "contest", "read_gbps": "2850.5", "empty_ns": "2100.0"}
    device |= {"retargeted": json.dumps([rewritten] if retargeted else [])}
    values |= {f"device.{name}": value for name, value in device.items()}
    return verdict_of("leaderboard", ["m: 7168; k: 16384; l: 1; seed: 1111"], values)


prediction: dict[str, Any] = {"gpu": "B200", "us": 28.9, "low_us": 25.5, "high_us": 39.0}
prediction |= {"bound": "memory bandwidth", "parts": {"launch": 2.5, "memory_bandwidth": 26.4}}
prediction |= {"kernels": [{"kernel": "gemv", "us": 26.4, "registers": 64}], "missing": None}

no_prediction: dict[str, Any] = dict.fromkeys(("us", "low_us", "high_us", "bound"))
no_prediction |= {"gpu": "B200", "parts": {}, "kernels": [], "missing": "nvdisasm is missing"}


def predicted_verdict(*told: dict[str, Any]) -> verdicts.Verdict:
    """An emulated run with a benchmark for each prediction."""
    run = recorded("emulated")
    values = dict(run["values"])
    for index, each in enumerate(told):
        counts = {name: text for name, text in values.items() if name.startswith("benchmark.0.")}
        values |= {name.replace(".0.", f".{index}."): text for name, text in counts.items()}
        values[f"benchmark.{index}.predicted"] = json.dumps(each)
    return verdict_of("leaderboard", run["cases"] * len(told), values)


def every_verdict() -> dict[str, verdicts.Verdict]:
    """By name: recorded, timed, retargeted, predicted, skipped, not judged, empty."""
    made = {name: recorded_verdict(name) for name in names}
    made |= {"timed": timed_verdict(), "retargeted": timed_verdict(retargeted=True)}
    cases = recorded("fault")["cases"]
    made["predicted"] = predicted_verdict(prediction, no_prediction)
    made["not_judged"] = verdict_of("test", cases, {})
    made["no_benchmark"] = verdict_of("leaderboard", cases[:1], {})
    made["empty"] = verdict_of("test", [], {})
    return made


hostile = [
    "two\nlines\r\nand\rmore\u2028\x85\x0b\x0c",
    "<!-- & -- > &amp; ]]>",
    "\x00\x01\x1b[31m\x7f\x9b\ufffe\uffff\ud800",
    'quote " and, comma; and\ttab',
    "| cell | cell |\n|---|\n\\| \\",
    "``` `` ` @everyone #1 <script> [x](http://x) ![x](y)",
    "",
    "x" * 5000,
]


def verdict_with(text: str) -> verdicts.Verdict:
    """A verdict in which everything that a submission can say is this text."""
    told: dict[str, Any] = {"code": "call.exception", "message": text, "hint": text, "file": text}
    told |= {"kernel": text, "line": 3, "arguments": {text: text}}
    causes = [{"code": "scales.shift", "operand": text, "or": []}]
    failure = read_failure({**told, "causes": causes})
    finding = Finding(text, text, kernel=text, file=text, line=4, count=1, hint=text, rule=text)
    test = verdicts.TestResult(case(), "fail", text, 0.5, [finding], failure)
    device = verdicts.Device("cpu", text, emulates=text)
    verdict = verdicts.Verdict(verdicts.Submission(text, "0" * 64), device)
    verdict.tests = [test, replace(test, inputs="full")]
    verdict.warnings = [verdicts.Warning("noisy", text, text)]
    return verdict
