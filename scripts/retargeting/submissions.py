"""Whole submissions for sm_100a on this GPU: judged, timed, and their bits against the emulator's.

    python -m scripts.retargeting.submissions OUT.json [FILE ...]

Run it from the repository root; scripts/on_gpu.sh does. A file must pass all 20 tests, have a time
and a list of what was rewritten, and give the emulator's bits on all tests with both kinds
of inputs. Bits are compared with everything rewritten. The judge rewrites what does not run as it
is, and all of submission.py.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from scripts.fidelity.submissions import compared
from scripts.retargeting.judge import run

FILES = [
    *("submission.py", "tests/kernels/packed.py", "tests/field/template/pointers.py"),
    *("tests/field/cuda/wide_loads.py", "tests/field/cuda/ptx_pointers.py"),
    *("tests/field/cuda/large_shared.py", "tests/field/triton/inline_assembly.py"),
]
ARCH = "sm_100a"
SECONDS = 200
TESTS = 20


def judged(path: Path) -> dict[str, Any]:
    """What `nvfp4 eval` says of a file."""
    retarget = "always" if path.name == "submission.py" else "auto"
    return run(["eval", str(path), "--retarget", retarget, "--arch", ARCH], SECONDS)


def passed(result: dict[str, Any]) -> bool:
    """Whether a file did what it must."""
    verdict = result["judged"]
    return bool(
        result.get("cases") == result.get("same") == TESTS
        and verdict.get("passed")
        and verdict["tests"] == TESTS
        and verdict["score"]["geomean_us"]
        and verdict["retargeted"]
    )


def main() -> int:
    """Writes a JSON object a file; 1 if one of them failed."""
    out = Path(sys.argv[1])
    files = [Path(each).resolve() for each in sys.argv[2:] or FILES]
    results = list(compared(files, ARCH, retargeted=True))
    for path, result in zip(files, results, strict=True):  # nothing runs beside what is timed
        result["judged"] = judged(path)
        result["passed"] = passed(result)
        print(json.dumps(result), flush=True)
        out.write_text(json.dumps(results, indent=1))
    return 0 if all(result["passed"] for result in results) else 1


if __name__ == "__main__":
    sys.exit(main())
