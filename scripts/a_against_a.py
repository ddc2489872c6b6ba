"""submission.py against itself: two benchmarks in a row, after each flush.

    python -m scripts.a_against_a OUT.json [ROUNDS]

Run it from the repository root on a machine with a GPU. Exits 1 where two scores are further apart
than half a percent.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from nvfp4.cli.problem import load_problem
from scripts.judge_repeatability import geomean_us, same_share


def main() -> int:
    """Writes and prints a JSON object."""
    out, rounds = Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 3
    problem, submission = load_problem(), Path("submission.py").read_bytes()
    found: dict[str, Any] = {}
    for flush in ("contest", "clean"):
        pairs = [[geomean_us(problem, submission, flush) for _ in range(2)] for _ in range(rounds)]
        worst = max(abs(second / first - 1) for first, second in pairs)
        found[flush] = {"us": pairs, "worst": worst, "passed": worst <= same_share}
        print(json.dumps({flush: found[flush]}), flush=True)
        out.write_text(json.dumps(found, indent=1))
    return 0 if all(each["passed"] for each in found.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
