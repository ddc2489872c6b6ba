"""Checks on a GPU what retargeting promises: the same bits as the emulator, at no cost of the host.

    PYTHONPATH=.:tests:tests/retarget python -m scripts.retargeting OUT.json [PART ...]

Run it from the repository root; scripts/on_gpu.sh does. Each part is a process of its own: where
one fails or hangs, the others still run. Prints a line for each part, writes all of it as JSON, and
exits 1 if anything is wrong. CuTe DSL and Numba must be installed; no network is needed.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

PARTS = {
    # Name of the module, and its share of the time in seconds.
    "rows": 150,
    "outputs": 170,
    "executor": 60,
    "timing": 90,
    "judge": 240,
}


def run_part(name: str, seconds: float) -> dict[str, Any]:
    """The JSON object that a part prints last, or why there is none."""
    start = time.monotonic()
    command = [sys.executable, "-m", f"scripts.retargeting.{name}"]
    found: dict[str, Any]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=seconds)
        said = done.stdout.strip().splitlines()
        try:
            found = json.loads(said[-1])
        except (IndexError, ValueError):
            found = {"passed": False, "error": (done.stdout + done.stderr)[-3000:]}
        found["exit_code"] = done.returncode
    except subprocess.TimeoutExpired as late:
        output = (late.stdout or b"") + (late.stderr or b"")
        text = output.decode("utf-8", "replace") if isinstance(output, bytes) else output
        found = {"passed": False, "error": f"not done after {seconds:.0f} s: {text[-2000:]}"}
    return {**found, "seconds": round(time.monotonic() - start, 1)}


def main() -> int:
    """Runs the parts one after the other."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("out", type=Path)
    parser.add_argument("parts", nargs="*", default=list(PARTS))
    parser.add_argument("--seconds", type=float, default=470, help="for all parts together")
    arguments = parser.parse_args()
    deadline = time.monotonic() + arguments.seconds
    results: dict[str, Any] = {}
    for name in arguments.parts:
        left = deadline - time.monotonic()
        if left < 10:
            results[name] = {"passed": False, "error": "no time left"}
        else:
            results[name] = run_part(name, min(PARTS[name], left))
        print(json.dumps({name: results[name]}), flush=True)
        arguments.out.write_text(json.dumps(results, indent=1))
    return 0 if all(result.get("passed") for result in results.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
