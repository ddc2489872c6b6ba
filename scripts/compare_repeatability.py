"""How often `nvfp4 compare` says what is true: of submission.py and its copy, and of a slower one.

    python -m scripts.compare_repeatability OUT.jsonl --copies 20 --slower 10

Run it from the repository root on a machine with a GPU. Adds a line to OUT.jsonl for each
comparison: what it was, the verdict, the change with its interval, the times of all rounds, and how
many seconds it took. Prints how often each verdict came, over all lines of the file, so that a few
comparisons can be added at a time. With several GPUs (--gpus 0,1,2), one comparison runs on each.
"""

from __future__ import annotations

import argparse
import json
import os
import queue
import subprocess
import sys
import tempfile
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from scripts.slower import slower

slower_permille = 12
"""More CTAs than submission.py has; of 10, five comparisons on an H200 made 0.4 to 1.1 %."""


def compared(baseline: Path, file: Path, gpu: str | None) -> dict[str, Any]:
    """The object of one comparison; see docs/json.md."""
    command = [sys.executable, "-m", "nvfp4", "compare", str(baseline), str(file), "--json"]
    environment = dict(os.environ)
    if gpu is not None:
        environment["CUDA_VISIBLE_DEVICES"] = gpu
    done = subprocess.run(command, stdout=subprocess.PIPE, env=environment, check=False)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def summary(kind: str, found: dict[str, Any]) -> dict[str, Any]:
    """What is kept of a comparison; the verdict is "none" where it ended without one."""
    if not found.get("comparisons"):
        return {"kind": kind, "verdict": "none", "found": found}
    (only,) = found["comparisons"]
    kept = {name: only[name] for name in ("verdict", "change", "low", "high")}
    rounds = [each["mean_us"] for each in found["rounds"]]
    return {"kind": kind, **kept, "elapsed_s": found["elapsed_s"], "rounds": rounds}


def order(copies: int, slower: int) -> list[str]:
    """Both kinds in turns, so that a run that is cut off has some of each."""
    share = slower / max(1, copies)
    kinds = [(number / share, "slower") for number in range(slower)]
    kinds += [(number, "copy") for number in range(copies)]
    return [kind for _, kind in sorted(kinds)]


def main() -> None:
    """Compares, and counts the verdicts."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("--submission", type=Path, default=Path("submission.py"))
    parser.add_argument("--copies", type=int, default=20)
    parser.add_argument("--slower", type=int, default=10)
    parser.add_argument("--gpus", help="as CUDA_VISIBLE_DEVICES names them")
    parser.add_argument("--limit-s", type=float, default=float("inf"), help="none starts later")
    arguments = parser.parse_args()
    ends = time.monotonic() + arguments.limit_s
    text = arguments.submission.read_text(encoding="utf-8")
    texts = {"copy": text, "slower": slower(text, slower_permille)}
    gpus: list[str | None] = list(arguments.gpus.split(",")) if arguments.gpus else [None]
    free: queue.SimpleQueue[str | None] = queue.SimpleQueue()
    for gpu in gpus:
        free.put(gpu)
    with tempfile.TemporaryDirectory() as folder, arguments.out.open("a") as out:
        for kind, content in texts.items():
            Path(folder, f"{kind}.py").write_text(content, encoding="utf-8")

        def one(kind: str) -> None:
            if time.monotonic() > ends:
                return
            gpu = free.get()
            try:
                found = compared(arguments.submission, Path(folder, f"{kind}.py"), gpu)
            finally:
                free.put(gpu)
            line = summary(kind, found)
            out.write(json.dumps(line) + "\n")
            out.flush()
            if "change" not in line:
                print(f"{kind:<7} {json.dumps(found)[:2000]}", flush=True)
                return
            print(
                f"{kind:<7} {line['verdict']:<8} {line['change']:+.2%} "
                f"({line['low']:+.2%} to {line['high']:+.2%})  {len(line['rounds'])} rounds, "
                f"{line['elapsed_s']:.0f} s",
                flush=True,
            )

        with ThreadPoolExecutor(len(gpus)) as pool:
            list(pool.map(one, order(arguments.copies, arguments.slower)))
    lines = [json.loads(line) for line in arguments.out.read_text().splitlines()]
    for (kind, word), count in sorted(Counter((e["kind"], e["verdict"]) for e in lines).items()):
        print(f"{kind}: {word} in {count}")


if __name__ == "__main__":
    main()
