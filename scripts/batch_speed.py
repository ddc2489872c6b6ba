"""What a second, a fourth, an eighth GPU saves a batch, and whether it changes the times.

    python -m scripts.batch_speed OUT.json [--only all|one] [FILE ...]

Run it from the repository root on a machine with several GPUs. Judges forty submissions, or the
files that are named, with `nvfp4 batch` on every GPU and then on one, each with empty caches and
without a history. Writes and prints both durations and their ratio, the verdicts that differ, and
the largest difference of a geometric mean. --only does half of it and keeps the other half that
OUT.json has.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

broken = (
    "changes_an_input computes_wrong_values crashes exits leaves_c_unwritten raises returns_a_list "
    "returns_a_wrong_dtype returns_a_wrong_shape returns_inf returns_nan returns_none right "
    "skips_high_nibbles"
)
"""Of tests/submissions: those that neither hang nor fill the memory."""


def forty() -> list[Path]:
    """What a program that writes kernels hands in: more wrong ones than right ones, in CuTe DSL,
    Triton and torch. CUDA C++, whose compiler takes most of the time, is left out."""
    found = [Path("submission.py"), *sorted(Path("ladder/cute").glob("*.py"))[2::3]]
    kernels = sorted(Path("tests/kernels").glob("*.py"))
    found += [each for each in kernels if not each.name.startswith(("__", "test_"))]
    found += [Path("tests/submissions", f"{name}.py") for name in broken.split()]
    found += sorted(Path("tests/field/misreadings").glob("*.py"))
    found += sorted(Path("tests/field/triton").glob("*.py"))
    return found[:40]


def batch(files: list[Path], gpus: int | None) -> dict[str, Any]:
    """elapsed_s, and by file: passed and geomean_us."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder, "out.jsonl")
        options = [] if gpus is None else ["--gpus", str(gpus)]
        command = [sys.executable, "-m", "nvfp4", "batch", *map(str, files), "--jsonl", str(out)]
        environment = {**os.environ, "XDG_CACHE_HOME": folder, "NVFP4_NO_LOG": "1"}
        started = time.monotonic()
        subprocess.run([*command, *options], env=environment, check=False)
        elapsed_s = time.monotonic() - started
        if not out.exists():
            sys.exit("nvfp4 batch has judged nothing")
        lines = [json.loads(line) for line in out.read_text().splitlines()]
    found = {
        line["submission"]["path"]: {
            "passed": line["passed"],
            "geomean_us": (line.get("score") or {}).get("geomean_us"),
        }
        for line in lines
    }
    return {"elapsed_s": elapsed_s, "files": found}


def main() -> None:
    """Judges twice and compares."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("files", type=Path, nargs="*")
    parser.add_argument("--only", choices=["all", "one"])
    arguments = parser.parse_args()
    files = arguments.files or forty()
    runs: dict[str, Any] = {}
    if arguments.only and arguments.out.exists():
        runs = json.loads(arguments.out.read_text())
    for name, gpus in (("all", None), ("one", 1)):
        if arguments.only in (None, name):
            runs[name] = batch(files, gpus)
            arguments.out.write_text(json.dumps(runs))  # kept if time runs out
            print(f"{len(files)} files on {name}: {runs[name]['elapsed_s']:.1f} s", flush=True)
    if len(runs) < 2:
        return
    every, one = (runs[name]["files"] for name in ("all", "one"))
    differ = [path for path in one if every.get(path, {}).get("passed") != one[path]["passed"]]
    times = [
        (abs(every[path]["geomean_us"] / one[path]["geomean_us"] - 1), path)
        for path in one
        if path in every and one[path]["geomean_us"] and every[path]["geomean_us"]
    ]
    ratio = runs["all"]["elapsed_s"] / runs["one"]["elapsed_s"]
    print(f"{len(files)} files: {runs['all']['elapsed_s']:.1f} s on all GPUs, ", end="")
    print(f"{runs['one']['elapsed_s']:.1f} s on one: {ratio:.3f}")
    print(f"verdicts that differ: {', '.join(differ) or 'none'}")
    if times:
        share, path = max(times)
        print(f"largest difference of a geometric mean: {share:.2%}, {path}")


if __name__ == "__main__":
    main()
