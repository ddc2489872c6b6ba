"""How well the judge repeats itself, and whether it tells a slightly slower submission apart.

    python -m scripts.judge_repeatability --rounds 10

Run it from the repository root on a machine with a GPU. In each round the judge benchmarks the same
submission twice, as `nvfp4 bench` does, then a copy that multiplies some rows twice. Prints a row
for each round, then the worst difference.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from nvfp4.cli.assess import Observer, Plan, assess
from nvfp4.cli.bot import Bot
from nvfp4.cli.problem import Problem, load_problem
from nvfp4.cli.verdict import Submission, Verdict
from nvfp4.records.options import Options
from scripts.slower import slower as slower_copy

slower_permille = 40
"""More CTAs than submission.py has."""

same_share, told_apart_share = 0.005, 0.005


def geomean_us(problem: Problem, submission: bytes, flush: str = "contest") -> float:
    """The geometric mean of one leaderboard run, in microseconds."""
    verdict = Verdict(Submission("", ""))
    plan = Plan([], problem.benchmarks, run_alone=False)
    assess(Bot(problem, submission, Options(flush=flush)), plan, verdict, Observer())
    if verdict.score.geomean_us is None:
        sys.exit(f"no score: {[each.message for each in verdict.benchmarks]}")
    return verdict.score.geomean_us


def main() -> None:
    """Runs the rounds: same, same, slower."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--submission", type=Path, default=Path("submission.py"))
    options = parser.parse_args()
    problem, submission = load_problem(), options.submission.read_bytes()
    slower = slower_copy(submission.decode(), slower_permille).encode()
    same, apart = [], 0
    for number in range(1, options.rounds + 1):
        first, second, slow = (geomean_us(problem, s) for s in (submission, submission, slower))
        same.append(abs(second / first - 1))
        apart += slow / second - 1 > told_apart_share
        print(
            f"{number:>2}  {first:.3f}  {second:.3f} us ({second / first - 1:+.2%})"
            f"   slower {slow:.3f} us ({slow / second - 1:+.2%})",
            flush=True,
        )
    within = sum(share < same_share for share in same)
    print(f"{within} of {options.rounds} pairs within {same_share:.1%}, worst {max(same):.2%}")
    print(f"the slower one told apart in {apart} of {options.rounds}")


if __name__ == "__main__":
    main()
