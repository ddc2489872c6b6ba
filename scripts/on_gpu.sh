#!/usr/bin/env bash
# What to run on a machine with a GPU before a release; results go to the folder named.
#
#     scripts/on_gpu.sh OUT [tests|eval|selftest|repeatability ...]
set -uo pipefail
cd "$(dirname "$0")/.."
out=$1
shift
mkdir -p "$out"
status=0

run() { # NAME COMMAND...: its output to a file of that name and its end to the terminal
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
    eval) run eval python3 -m cli eval submission.py ;;
    selftest) run selftest python3 -m cli selftest --json ;;
    repeatability) run repeatability python3 scripts/judge_repeatability.py --rounds 10 ;;
    *) echo "unknown part: $part" >&2; status=2 ;;
    esac
done
exit "$status"
