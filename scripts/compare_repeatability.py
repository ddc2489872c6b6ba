"""How often `nvfp4 compare` says what is true: of submission.py and its copy, and of a slower one.

    python -m scripts.compare_repeatability OUT.jsonl --copies 20 --slower 10

Run it from the repository root on a machine with a GPU. Adds a line to OUT.jsonl for each
comparison: what it was, the verdict, the change with its interval, the times of all rounds, and how
many seconds it took. Prints how often each verdict came, over all lines of the file, so that a few
comparisons can be added at a time.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

from scripts.slower import slower

slower_permille = 6
"""More CTAs than submission.py has. 10 made it 1.6 to 1.8 % slower on an H200."""


def compared(baseline: Path, file: Path, *options: str) -> dict[str, Any]:
    """The object of one comparison; see docs/json.md. Ends the script where there is none."""
    command = [sys.executable, "-m", "nvfp4", "compare", str(baseline), str(file), "--json"]
    done = subprocess.run([*command, *options], stdout=subprocess.PIPE, check=False)
    found: dict[str, Any] = json.loads(done.stdout)
    if not found.get("comparisons"):
        sys.exit(f"no comparison: {json.dumps(found)[:2000]}")
    return found


def summary(kind: str, found: dict[str, Any]) -> dict[str, Any]:
    """What is kept of a comparison."""
    (only,) = found["comparisons"]
    kept = {name: only[name] for name in ("verdict", "change", "low", "high")}
    rounds = [each["mean_us"] for each in found["rounds"]]
    return {"kind": kind, **kept, "elapsed_s": found["elapsed_s"], "rounds": rounds}


def main() -> None:
    """Compares, and counts the verdicts."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("--submission", type=Path, default=Path("submission.py"))
    parser.add_argument("--copies", type=int, default=20)
    parser.add_argument("--slower", type=int, default=10)
    arguments = parser.parse_args()
    text = arguments.submission.read_text(encoding="utf-8")
    texts = {"copy": text, "slower": slower(text, slower_permille)}
    with tempfile.TemporaryDirectory() as folder, arguments.out.open("a") as out:
        for kind, count in (("copy", arguments.copies), ("slower", arguments.slower)):
            path = Path(folder) / f"{kind}.py"
            path.write_text(texts[kind], encoding="utf-8")
            for _ in range(count):
                line = summary(kind, compared(arguments.submission, path))
                out.write(json.dumps(line) + "\n")
                out.flush()
                print(
                    f"{kind:<7} {line['verdict']:<8} {line['change']:+.2%} "
                    f"({line['low']:+.2%} to {line['high']:+.2%})  {len(line['rounds'])} rounds, "
                    f"{line['elapsed_s']:.0f} s",
                    flush=True,
                )
    lines = [json.loads(line) for line in arguments.out.read_text().splitlines()]
    for (kind, word), count in sorted(Counter((e["kind"], e["verdict"]) for e in lines).items()):
        print(f"{kind}: {word} in {count}")


if __name__ == "__main__":
    main()
