#!/usr/bin/env bash
# What to run on a machine with a GPU before a release; the outputs go to the folder OUT.
# nvfp4 need not be installed.
#
#     scripts/on_gpu.sh OUT [PART ...]
#
# PART: tests, eval, selftest, repeatability, submissions, retarget, retarget-submissions.
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
    tests) run tests python3 -m pytest -q -m "gpu or blackwell" ;;
    eval) run eval python3 -m nvfp4 eval submission.py ;;
    selftest) run selftest python3 -m nvfp4 selftest --json ;;
    repeatability) run repeatability python3 -m scripts.judge_repeatability --rounds 10 ;;
    submissions) # CUDA C++ and Triton, native and emulated
        mapfile -t files < <(grep -l "^#!EXPECT pass" tests/field/{cuda,triton}/*.py)
        PYTHONPATH=$PYTHONPATH:$PWD/harness \
            run submissions python3 -m scripts.fidelity.submissions "$out/submissions.json" "${files[@]}"
        ;;
    retarget-submissions) # whole files for sm_100a; or those that FILES names
        PYTHONPATH=$PYTHONPATH:$PWD/harness run retarget-submissions \
            python3 -m scripts.retargeting.submissions "$out/retarget-submissions.json" ${FILES:-}
        ;;
    retarget)
        PYTHONPATH=$PYTHONPATH:$PWD/harness:$PWD/tests:$PWD/tests/retarget \
            run retarget python3 -m scripts.retargeting "$out/retarget.json"
        ;;
    *) echo "unknown part: $part" >&2; status=2 ;;
    esac
done
exit "$status"
