"""The command on code that needs sm_100, and on submission.py made to."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from typing import Any

COMMANDS = {
    "packed, auto": ["test", "tests/kernels/packed.py"],
    "submission, always": ["eval", "submission.py", "--retarget", "always", "--arch", "sm_100a"],
    "packed, bench": ["bench", "tests/kernels/packed.py"],
    "packed, never": ["test", "tests/kernels/packed.py", "--retarget", "never"],
}
EXPECTED = {"packed, never": False}
SECONDS = 110


def run(arguments: list[str], seconds: float = SECONDS) -> dict[str, Any]:
    """The parts of the command's JSON that matter here."""
    command = [sys.executable, "-m", "nvfp4", *arguments, "--json"]
    start = time.monotonic()
    # Without the folders that the other parts take flat modules from.
    folders = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    flat = ("/tests", "/tests/retarget")
    paths = os.pathsep.join(folder for folder in folders if not folder.endswith(flat))
    environment = {**os.environ, "PYTHONPATH": paths}
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=seconds, env=environment
        )
        verdict = json.loads(done.stdout)
    except subprocess.TimeoutExpired as error:
        return {"error": f"{type(error).__name__}: {error}"[:500]}
    except ValueError:
        return {"error": (done.stdout + done.stderr)[-1500:]}
    results = [*verdict["tests"], *verdict["benchmarks"]]
    messages = [each["message"] for each in results if each["message"]]
    return {
        "passed": verdict["passed"],
        "tests": sum(test["status"] == "pass" for test in verdict["tests"]),
        "of": len(verdict["tests"]),
        "score": verdict["score"],
        "means_us": [each["mean_us"] for each in verdict["benchmarks"]],
        "retargeted": verdict["device"]["retargeted"][:2],
        "messages": messages[:1],
        "warnings": [warning["code"] for warning in verdict["warnings"]],
        "seconds": round(time.monotonic() - start, 1),
    }


def main() -> int:
    """Prints a JSON object; 1 if a verdict is not what it should be."""
    found = {name: run(arguments) for name, arguments in COMMANDS.items()}
    passed = all(each.get("passed") is EXPECTED.get(name, True) for name, each in found.items())
    print(json.dumps({"passed": passed, "commands": found}))
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main())
