#!/usr/bin/env bash
# What to run on a machine with a GPU before a release; the outputs go to the folder OUT.
# nvfp4 need not be installed. Each part begins with an empty home folder and empty caches.
#
#     scripts/on_gpu.sh OUT [PART ...]
#
# PART: tests, eval, selftest, selftest-clean, compare, ladder, sanitize. Each takes ten minutes at
# most.
set -uo pipefail
cd "$(dirname "$0")/.."
out=$1
shift
mkdir -p "$out"
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
    eval) run eval python3 -m nvfp4 eval submission.py ;;
    selftest) run selftest python3 -m nvfp4 selftest --json ;;
    selftest-clean) run selftest-clean python3 -m nvfp4 selftest --flush clean --json ;;
    compare) # own, Triton, cuBLAS and torch after both flushes
        for flush in contest clean; do
            run "compare-$flush" python3 -m benchmarks.compare --flush "$flush"
        done
        ;;
    ladder) # what compiles is tested beside each other, at the first try; then times of all rungs
        mapfile -t files < <(grep -l load_inline ladder/*/*.py)
        run ladder-first-try xargs -P 8 -n 1 python3 -m nvfp4 test -k 128x256x1 --no-log \
            < <(printf '%s\n' "${files[@]}")
        run ladder python3 -m nvfp4 batch ladder submission.py --jsonl "$out/ladder.jsonl"
        ;;
    *) echo "unknown part: $part" >&2; status=2 ;;
    esac
done
exit "$status"
