#!/usr/bin/env bash
# What to run on a machine with a GPU before a release; the outputs go to the folder OUT.
# nvfp4 need not be installed. Each part begins with an empty home folder and empty caches.
#
#     scripts/on_gpu.sh OUT [PART ...]
#
# PART: tests, eval, selftest, selftest-clean, compare, ladder, sanitize, batch, problems. Each takes
# ten minutes at most; tests, eval and selftest together do, too. batch judges the first 40 files of
# the folder FILES, which are CUDA C++, twice; problems needs CHECKOUT, a clone of
# gpu-mode/reference-kernels:
#
#     FILES=shared/files CHECKOUT=shared/reference-kernels scripts/on_gpu.sh OUT batch
set -uo pipefail
cd "$(dirname "$0")/.."
out=$1
shift
mkdir -p "$out"
out=$(realpath "$out")
export PYTHONPATH=$PWD${PYTHONPATH:+:$PYTHONPATH}
export PYTHONUSERBASE=${PYTHONUSERBASE:-$HOME/.local}
unset XDG_CACHE_HOME XDG_DATA_HOME TRITON_CACHE_DIR TRITON_HOME TORCH_EXTENSIONS_DIR \
    CUTE_DSL_CACHE_DIR CUDA_CACHE_PATH NUMBA_CACHE_DIR PYTHONDONTWRITEBYTECODE
cold=$(mktemp -d)
trap 'rm -rf "$cold"' EXIT
status=0

forget() { # nothing is kept of what ran before
    rm -rf "$cold"
    mkdir -p "$cold/home" "$cold/tmp"
    export HOME=$cold/home TMPDIR=$cold/tmp # where some keep caches
}

run() { # NAME COMMAND...: writes the output to OUT/NAME.txt and shows its end
    local name=$1 start=$SECONDS
    shift
    "$@" >"$out/$name.txt" 2>&1 || status=1
    echo "== $name: $((SECONDS - start)) s"
    tail -n "${TAIL:-12}" "$out/$name.txt"
}

judged() { # COMMAND...: a submission that fails or is unclear is no failure of the command
    "$@"
    local code=$?
    [ "$code" = 0 ] || [ "$code" = 1 ] || [ "$code" = 3 ]
}

same_verdicts() { # ONE.jsonl OTHER.jsonl: verdicts must be the same, and means within 1 %
    python3 - "$@" <<'END'
import json, sys

def judged(file):
    lines = [json.loads(line) for line in open(file)]
    return {line["submission"]["path"]: line for line in lines}

def verdict(line):
    decided = (line.get("decided_by") or {}).get("failure") or line.get("error") or {}
    return line["passed"], line.get("unclear"), decided.get("code")

def means_us(line):
    return {each["spec"]: each["mean_us"] for each in line.get("benchmarks", []) if each["mean_us"]}

one, other = map(judged, sys.argv[1:])
bad = len(one.keys() ^ other.keys())
for path in sorted(one.keys() & other.keys()):
    verdicts = verdict(one[path]), verdict(other[path])
    before, after = means_us(one[path]), means_us(other[path])
    off = [abs(after[spec] / before[spec] - 1) for spec in before.keys() & after.keys()]
    differs = verdicts[0] != verdicts[1] or max(off, default=0) > 0.01
    bad += differs
    print("differs" if differs else "same", path, *verdicts, f"{max(off, default=0):.2%}")
print(f"{len(one)} and {len(other)} files, {bad} differ in the verdict or by more than 1 %")
sys.exit(bool(bad or not one))
END
}

own_eval() { # FOLDER SUBMISSION NAME: a problem judged by its own eval.py, then by nvfp4, compared
    local flat=$cold/$3
    mkdir -p "$flat"
    cp "$2" "$flat/submission.py"
    python3 - "$1" "$flat" <<'END' || return 1
import sys
from pathlib import Path
from nvfp4.cli.problem import load_problem

problem, flat = load_problem(Path(sys.argv[1])), Path(sys.argv[2])
for name, content in problem.files.items():
    (flat / name).write_bytes(content)
(flat / "cases.txt").write_text("\n".join(problem.benchmarks) + "\n")
END
    # Its modules come from its own folder, before ours of the same name.
    (cd "$flat" && POPCORN_FD=3 python3 eval.py leaderboard cases.txt \
        3>"$out/$3.theirs.txt") || echo "its own eval.py ended with $?"
    judged python3 -m nvfp4 bench "$2" --problem "$1" --json --no-log >"$out/$3.ours.json" || return 1
    python3 - "$out/$3.theirs.txt" "$out/$3.ours.json" <<'END'
import json, sys

lines = (line.split(": ", 1) for line in open(sys.argv[1]) if ": " in line)
theirs = {key: value.strip() for key, value in lines}
bad = theirs.get("check") != "pass"
print("check by its own eval.py:", theirs.get("check"))
for number, each in enumerate(json.load(open(sys.argv[2]))["benchmarks"]):
    own = float(theirs.get(f"benchmark.{number}.mean", "nan")) / 1e3
    ratio = (each["mean_us"] or float("nan")) / own
    differs = not abs(ratio - 1) <= 0.05
    bad |= differs
    mark = "  <- more than 5 % apart" if differs else ""
    print(f"{each['spec']}: {each['mean_us']} us, its own {own:.3f} us, {ratio:.3f}{mark}")
sys.exit(bad)
END
}

nvidia-smi --query-gpu=name,driver_version,clocks.sm,clocks.mem,temperature.gpu --format=csv
for part in "${@:-tests}"; do
    forget
    case $part in
    tests) # the others' modules may need what is not installed
        mapfile -t files < <(grep -rlE "mark\.(gpu|blackwell)" --include="test_*.py" tests)
        run tests python3 -m pytest -q -m "gpu or blackwell" "${files[@]}"
        ;;
    sanitize) # submission.py under compute-sanitizer
        export PYTORCH_NO_CUDA_MEMORY_CACHING=1
        # CUDA's bindings for Python ask for functions that the driver may lack.
        run memcheck compute-sanitizer --tool memcheck --report-api-errors no --error-exitcode 9 \
            python3 -m scripts.sanitize
        run racecheck compute-sanitizer --tool racecheck --error-exitcode 9 \
            python3 -m scripts.sanitize
        unset PYTORCH_NO_CUDA_MEMORY_CACHING
        ;;
    eval) # with empty caches, and twice more
        for name in eval eval-again eval-third; do
            run $name python3 -m nvfp4 eval submission.py
        done
        ;;
    batch) # with builds beside the judgements, again when all is built, and some by themselves
        mapfile -t files < <(find "${FILES:?}" -name "*.py" | sort | head -n 40)
        for name in batch batch-again; do
            run $name judged python3 -m nvfp4 batch "${files[@]}" --jsonl "$out/$name.jsonl"
        done
        TAIL=41 run batch-differences same_verdicts "$out/batch.jsonl" "$out/batch-again.jsonl"
        run batch-history judged python3 -m nvfp4 batch "${files[@]:0:2}"
        run batch-log python3 -m nvfp4 log
        ;;
    problems)
        v2=${CHECKOUT:?}/problems/pmpp_v2
        for name in vectoradd matmul prefixsum sort grayscale; do
            right=("$v2/${name}_py/solutions/correct/"*.py)
            run "$name" own_eval "$v2/${name}_py" "${right[0]}" "$name"
        done
        group=$CHECKOUT/problems/nvidia/nvfp4_group_gemm # refused or rewritten by name
        run group judged python3 -m nvfp4 check "$group/submission.py" --problem "$group"
        ;;
    selftest) run selftest python3 -m nvfp4 selftest --json ;;
    selftest-clean) run selftest-clean python3 -m nvfp4 selftest --flush clean --json ;;
    compare) # own, Triton, cuBLAS and torch after both flushes
        for flush in contest clean; do
            run "compare-$flush" python3 -m benchmarks.compare --flush "$flush"
        done
        ;;
    ladder) # what compiles is tested beside each other, at the first try; then times of all rungs
        mapfile -t files < <(grep -l load_inline ladder/*/*.py)
        run ladder-first-try xargs -P 8 -n 1 python3 -m nvfp4 test --case 128x256x1 --no-log \
            < <(printf '%s\n' "${files[@]}")
        run ladder python3 -m nvfp4 batch ladder submission.py --jsonl "$out/ladder.jsonl"
        ;;
    *) echo "unknown part: $part" >&2; status=2 ;;
    esac
done
exit "$status"
