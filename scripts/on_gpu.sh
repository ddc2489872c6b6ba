#!/usr/bin/env bash
# What to run on a machine with a GPU before a release; the outputs go to the folder OUT.
# nvfp4 need not be installed.
#
#     scripts/on_gpu.sh OUT [PART ...]
#
# PART: tests, eval, selftest, selftest-clean, submissions, retarget, retarget-submissions,
# retarget-self, compare, compare-self, ladder, sanitize. Each takes ten minutes at most; some write
# OUT/PART.json. FILES names the files of retarget-submissions, if not all are wanted.
set -uo pipefail
cd "$(dirname "$0")/.."
out=$1
shift
mkdir -p "$out"
export PYTHONPATH=$PWD${PYTHONPATH:+:$PYTHONPATH}
status=0

run() { # NAME COMMAND...: writes the output to OUT/NAME.txt and shows its end
    local name=$1 start=$SECONDS
    shift
    "$@" >"$out/$name.txt" 2>&1 || status=1
    echo "== $name: $((SECONDS - start)) s"
    tail -n "${TAIL:-12}" "$out/$name.txt"
}

nvidia-smi --query-gpu=name,driver_version,clocks.sm,clocks.mem,temperature.gpu --format=csv
for part in "${@:-tests}"; do
    case $part in
    tests) # the others' modules may need what is not installed
        mapfile -t files < <(grep -rlE "mark\.(gpu|blackwell)" --include="test_*.py" tests)
        run tests python3 -m pytest -q -m "gpu or blackwell" "${files[@]}"
        ;;
    sanitize) # submission.py under compute-sanitizer
        run sanitize python3 -m scripts.sanitize
        ;;
    eval) run eval python3 -m nvfp4 eval submission.py ;;
    selftest) run selftest python3 -m nvfp4 selftest --json ;;
    selftest-clean) run selftest-clean python3 -m nvfp4 selftest --flush clean --json ;;
    submissions) # CUDA C++ and Triton, native and emulated
        mapfile -t files < <(grep -l "^#!EXPECT pass" tests/field/{cuda,triton}/*.py)
        run submissions python3 -m scripts.fidelity.submissions "$out/submissions.json" "${files[@]}"
        ;;
    retarget-submissions) # whole files for sm_100a: bits, tests, times, what was rewritten
        # shellcheck disable=SC2086
        run retarget-submissions \
            python3 -m scripts.retargeting.submissions "$out/retarget-submissions.json" ${FILES:-}
        ;;
    retarget-self) # submission.py native, from its own PTX, and from sm_100a's
        PYTHONPATH=$PYTHONPATH:$PWD/tests:$PWD/tests/retarget run retarget-self \
            python3 -m scripts.retargeting "$out/retarget-self.json" timing
        ;;
    compare) # own, Triton, cuBLAS and torch after both flushes
        for flush in contest clean; do
            run "compare-$flush" python3 -m benchmarks.compare --flush "$flush"
        done
        ;;
    compare-self) # nvfp4 compare: with its copy, and with a slower one; repeat it for more
        run compare-self python3 -m scripts.compare_repeatability "$out/compare-self.jsonl" \
            --copies 4 --slower 2
        ;;
    ladder) # times of all rungs; what compiles is compiled before, beside each other
        grep -l load_inline ladder/*/*.py |
            xargs -P 8 -I FILE python3 -m nvfp4 check FILE >"$out/ladder-check.txt" 2>&1
        cp ladder/results.json "$out/ladder.json"
        run ladder python3 -m nvfp4 ladder --quick --state "$out/ladder.json"
        ;;
    retarget)
        PYTHONPATH=$PYTHONPATH:$PWD/tests:$PWD/tests/retarget \
            run retarget python3 -m scripts.retargeting "$out/retarget.json"
        ;;
    *) echo "unknown part: $part" >&2; status=2 ;;
    esac
done
exit "$status"
