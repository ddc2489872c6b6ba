"""How long `nvfp4 batch` takes on a GPU with empty caches, and what the GPU waits for meanwhile.

    PYTHONPATH=.:tests python -m scripts.batch_speed OUT.json [--files N] [--budget SECONDS]

Forty files, thirty of them in CUDA C++ and ten in CuTe DSL, a third of them wrong, from the ladder
and tests/field. While the batch runs it is noted twice a second whether a judgement holds the GPU,
and how busy that is. Then `nvfp4 eval` judges some of the right files by themselves, whose times
must be within 1 %, and, where there is time left, two with empty caches. Ends within the budget:
what the batch has not judged by then is left out.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from corpus import read

from nvfp4.sandbox.isolation import descendants

ROOT = Path(__file__).resolve().parent.parent

WRONG_IN_CUDA = (
    *("swapped_nibbles", "no_batch_stride", "scale_of_the_next_block", "undefined_identifier"),
    *("keeps_the_first_k", "four_scales_for_two", "undeclared_function", "refuses_batches"),
)
"""Of tests/field/cuda."""

BLACKWELL = "tcgen05"
"""In the names of files that no other GPU runs."""

ZEROED = """

_right = custom_kernel


def custom_kernel(data):
    return _right(data).zero_()
"""
"""Behind a right submission, makes it a wrong one."""

LOOK_S = 0.5
FIRST_MINUTE_S = 60.0
ALONE_S, FIRST_TRY_S = 20.0, 60.0
"""What `nvfp4 eval` takes for one file, with what is kept and with empty caches."""

RIGHT, WRONG = "right", "wrong"


def write_files(folder: Path, count: int) -> list[Path]:
    """So many files, of which three quarters are CUDA C++ and two thirds right, in the order in
    which somebody might have made them: mixed."""
    in_cuda = [*(ROOT / "ladder/cuda").glob("*.py"), *(ROOT / "ladder/detours").glob("*.py")]
    in_cuda = sorted(each for each in in_cuda if "load_inline" in each.read_text())
    in_cute = sorted((ROOT / "ladder/cute").glob("*.py"))
    in_cuda, in_cute = ([e for e in each if BLACKWELL not in e.name] for each in (in_cuda, in_cute))
    wrong = [read(ROOT / "tests/field/cuda", name).source for name in WRONG_IN_CUDA]
    paths = []
    for number in range(count):
        cuda, right = number % 4 != 3, number % 3 != 2
        of_kind = in_cuda if cuda else in_cute
        base = of_kind[number // (1 if cuda else 4) % len(of_kind)]
        source = base.read_text(encoding="utf-8") + ("" if right else ZEROED)
        if cuda and not right and wrong:
            source = wrong.pop(0)
        kind = f"{'cuda' if cuda else 'cute'}_{RIGHT if right else WRONG}"
        path = folder / f"{number:02}_{kind}.py"
        path.write_text(f"{source}\n# Number {number}.\n", encoding="utf-8")
        paths.append(path)
    return paths


@dataclass
class Samples:
    """What was seen at one time after the other, in seconds since the start. lines: of the batch.
    found: how many lines there were, how many compilers ran, and the share of the time in which the
    GPU was busy, in percent.
    """

    process: subprocess.Popen[bytes]
    lines: Path
    started_s: float = field(default_factory=time.monotonic)
    found: list[tuple[float, int, int, int | None]] = field(default_factory=list)

    def take(self) -> None:
        """Until the batch has ended."""
        running = True
        while running:
            running = self.process.poll() is None
            commands = [_command(pid) for pid in descendants(self.process.pid)]
            compilers = sum("cicc" in each or "cc1plus" in each for each in commands)
            judged = self.lines.read_bytes().count(b"\n") if self.lines.is_file() else 0
            at_s = time.monotonic() - self.started_s
            self.found.append((at_s, judged, compilers, _busy_percent()))
            time.sleep(LOOK_S)

    def summary(self) -> dict[str, Any]:
        """Shares of the time after the first minute, and of all of it. A judgement holds the GPU
        for as many seconds as its line says before the line was there.
        """
        elapsed_s = [json.loads(text)["elapsed_s"] for text in self.lines.read_text().splitlines()]
        held = []
        for number, taken_s in enumerate(elapsed_s):
            end_s = next(at_s for at_s, judged, *_ in self.found if judged > number)
            held.append((end_s - (taken_s or 0.0), end_s))
        end_s = max((end for _, end in held), default=0.0)
        busy = [each for at_s, *_, each in self.found if each is not None and at_s > FIRST_MINUTE_S]
        return {
            "held_share": _share(held, 0.0, end_s),
            "held_share_after_a_minute": _share(held, FIRST_MINUTE_S, end_s),
            "gpu_busy_percent": round(sum(busy) / len(busy), 1) if busy else None,
            "most_compilers": max(compilers for _, _, compilers, _ in self.found),
        }


def _share(held: Sequence[tuple[float, float]], from_s: float, to_s: float) -> float | None:
    """Of the time between two moments in which something was held."""
    taken_s = sum(max(0.0, min(end, to_s) - max(start, from_s)) for start, end in held)
    return round(taken_s / (to_s - from_s), 3) if to_s > from_s else None


def _command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
    except (OSError, ValueError):
        return ""


def _busy_percent() -> int | None:
    command = ["nvidia-smi", "--query-gpu=utilization.gpu", "--format=csv,noheader,nounits"]
    try:
        return int(subprocess.run(command, capture_output=True, text=True).stdout.split()[0])
    except (OSError, ValueError, IndexError):
        return None


def environment(folder: Path) -> dict[str, str]:
    """Of somebody who has judged nothing before."""
    homes = {f"XDG_{name}_HOME": str(folder / name.lower()) for name in ("CACHE", "DATA")}
    for each in (*homes.values(), str(folder / "tmp")):
        Path(each).mkdir(parents=True, exist_ok=True)
    packages = os.environ.get("PYTHONUSERBASE", str(Path.home() / ".local"))
    homes |= {"HOME": str(folder), "TMPDIR": str(folder / "tmp"), "PYTHONUSERBASE": packages}
    return {**os.environ, **homes}


def run_batch(paths: Sequence[Path], folder: Path, limit_s: float) -> tuple[dict[str, Any], Path]:
    """What was measured of a batch, and the file of its lines."""
    lines = folder / "lines.jsonl"
    command = [sys.executable, "-m", "nvfp4", "batch", *map(str, paths), "--jsonl", str(lines)]
    process = subprocess.Popen(command, cwd=ROOT, env=environment(folder))
    timer = threading.Timer(limit_s, lambda: process.send_signal(signal.SIGINT))
    timer.start()
    samples = Samples(process, lines)
    samples.take()
    timer.cancel()
    wall_s = round(time.monotonic() - samples.started_s, 1)
    measured = {"files": len(paths), "wall_s": wall_s, "exit_code": process.returncode}
    return {**measured, **samples.summary(), "samples": samples.found}, lines


def by_itself(path: Path, folder: Path) -> dict[str, Any]:
    """Geometric mean and seconds of `nvfp4 eval`, with what the folder keeps."""
    started_s = time.monotonic()
    command = [sys.executable, "-m", "nvfp4", "eval", str(path), "--json", "--no-log"]
    score = None
    try:
        ended = subprocess.run(
            command, cwd=ROOT, env=environment(folder), capture_output=True, timeout=2 * FIRST_TRY_S
        )
        score = json.loads(ended.stdout)["score"]["geomean_us"]
    except (ValueError, KeyError):
        print(ended.stderr.decode("utf-8", "replace")[-500:])
    except subprocess.TimeoutExpired:
        print(f"{path.name} by itself took too long")
    wall_s = round(time.monotonic() - started_s, 1)
    return {"geomean_us": score, "wall_s": wall_s}


def main() -> int:
    """The exit code: 1 where a verdict is not as the file's name says."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("--files", type=int, default=40)
    parser.add_argument("--budget", type=float, default=530.0, help="seconds")
    parser.add_argument("--alone", type=int, default=3, help="right files judged by themselves")
    given = parser.parse_args()
    end_s = time.monotonic() + given.budget
    with tempfile.TemporaryDirectory(prefix="batch-speed-") as name:
        folder = Path(name)
        paths = write_files(folder, given.files)
        limit_s = given.budget - (given.alone + 1) * ALONE_S
        measured, lines = run_batch(paths, folder / "batch", limit_s)
        judged = [json.loads(text) for text in lines.read_text().splitlines()]
        unexpected = [
            line["submission"]["path"]
            for line in judged
            if line["passed"] != (RIGHT in line["submission"]["path"])
        ]
        right = [line for line in judged if line["passed"]]
        together = []
        for line in right[:: max(1, len(right) // max(1, given.alone))][: given.alone]:
            if time.monotonic() + ALONE_S < end_s:
                path = Path(line["submission"]["path"])
                alone = by_itself(path, folder / "batch")
                together.append({**alone, "file": path.name, "batch_us": _geomean(line)})
        cold = [each for each in paths if "cuda_right" in each.name][:1]
        cold += [each for each in paths if "cute_right" in each.name][:1]
        first_tries = {
            each.name: by_itself(each, folder / f"cold-{each.stem}")
            for each in cold
            if time.monotonic() + FIRST_TRY_S < end_s
        }
        measured |= {
            "judged": len(judged),
            "unexpected": unexpected,
            "elapsed_s": {Path(e["submission"]["path"]).name: e["elapsed_s"] for e in judged},
            "alone": together,
            "with_empty_caches": first_tries,
        }
    given.out.write_text(json.dumps(measured, indent=1), encoding="utf-8")
    print(json.dumps({k: v for k, v in measured.items() if k != "samples"}, indent=1))
    return 1 if unexpected else 0


def _geomean(line: dict[str, Any]) -> float | None:
    score: float | None = line["score"]["geomean_us"]
    return score


if __name__ == "__main__":
    sys.exit(main())
