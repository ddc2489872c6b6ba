"""Searches a submission's space of configurations for the fastest on this GPU.

`nvfp4 tune` runs it as a process with `submission.py [--model B200] CASE...`. A submission declares
its space by `configurations(m, k, l, capability)`, a list of dataclass instances, and runs one of
them by `gemv(data, configuration)`. A wrong configuration is never ranked. Exit codes: 0, ranked;
1, no configuration of some shape is right; 2, the search could not start.
"""

import argparse
import pathlib
import sys
from contextlib import ExitStack
from functools import partial

from nvfp4.problems.nvfp4_gemv.referee import shape_of
from nvfp4.records.cases import CaseError, label, parse_case
from nvfp4.tuner.benches import Bench, Gpu, Model, Ranked, shown
from nvfp4.tuner.space import TuneError, load_space, name_of, sentence


def lines_of(ranking: list[Ranked], interval: str) -> list[str]:
    """Return the head of the ranking as a table: times in microseconds, then the ratio to the
    best."""
    best, rows = ranking[0], ranking[:shown]
    width = max(len("configuration"), *(len(each.name) for each in rows))
    lines = [f"  {'configuration':{width}}  {'us':>9}  {interval:>22}  to the best"]
    for each in rows:
        ends = f"[{each.low_us:.2f}, {each.high_us:.2f}]"
        tied = " not told apart" if each is not best and each.low_us <= best.high_us else ""
        ratio = each.us / best.us
        lines.append(f"  {each.name:{width}}  {each.us:9.2f}  {ends:>22}  x {ratio:.3f}{tied}")
    return lines


def search_all(path: pathlib.Path, cases: list[str], bench: Bench) -> int:
    """Rank the configurations of every case, and return the exit code. Raises TuneError,
    CaseError."""
    submission = load_space(path)
    all_ranked = True
    for name, shape in {label(line): shape_of(parse_case(line)) for line in cases}.items():
        try:
            space = {name_of(e): e for e in submission.configurations(*shape, bench.capability)}
        except (Exception, SystemExit) as error:
            what = f"{path} gives no configurations for {name}: {sentence(error)}"
            raise TuneError(what, "Return a list of dataclass instances.") from error
        bench.open(submission, shape)
        ranking = bench.ranking(space, partial(print, f"{name}:", flush=True)) if space else []
        if ranking:
            print(f"{name} on {bench.name}", *lines_of(ranking, bench.interval), sep="\n")
            print(f"  fastest: {space[ranking[0].name]}", flush=True)
        else:
            print(f"{name}: no configuration is right", flush=True)
            all_ranked = False
    return 0 if all_ranked else 1


def main(arguments: list[str] | None = None, bench: Bench | None = None) -> int:
    """Run the search and return the exit code. bench: where to run, by default on the GPU."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("submission", type=pathlib.Path)
    parser.add_argument("--model", help="the GPU to predict for, without one")
    parser.add_argument("cases", nargs="+")
    parsed = parser.parse_args(arguments)
    try:
        with ExitStack() as stack:
            if bench is None and parsed.model:
                bench = Model(parsed.model, parsed.submission)
                stack.callback(bench.close)
            return search_all(parsed.submission, parsed.cases, bench or Gpu())
    except (TuneError, CaseError) as error:
        hint = error.hint if isinstance(error, TuneError) else "Name cases as m,k,l."
        print(f"error: {error}\nhint: {hint}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("\nstopped", file=sys.stderr)
        return 130
