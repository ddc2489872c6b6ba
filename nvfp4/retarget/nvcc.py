"""Called as nvcc, for a GPU that the source may not be written for.

    nvcc.py auto|always ARCH NUMBER RULES NVCC ARGUMENTS...

ARCH: what is compiled for before it is rewritten. NUMBER: this GPU's architecture, such as 90.
RULES: an identity of what rewrites; it is there so that a build with other rules is another
command. auto: compiled as it is, and rewritten where the arguments name no code for this GPU or
compiling fails because of the architecture. What was rewritten is listed in a JSON file beside the
object.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

from nvfp4.capture.cuda import flags
from nvfp4.capture.cuda.native_build import BuildFailed, build_translated, compiles, output_of
from nvfp4.retarget.extensions import REPORT
from nvfp4.retarget.targets import runs_on

_error = re.compile(r"\b(error|fatal)\b", re.IGNORECASE)
_of_an_architecture = re.compile(
    r"\.target\b|\bsm_\d+|\bcompute_\d+|\barch|__CUDA_ARCH|blackwell|is undefined|no instance of"
    r"|modifier|instruction types|unknown instruction|PTX ISA",
    re.IGNORECASE,
)


def _fits(codes: list[str], number: int) -> bool:
    """Whether the GPU runs one of the codes that the arguments name, or none is named."""
    return not codes or any(runs_on(code, number) for code in codes)


def fits_not(said: str) -> bool:
    """Whether an error among what nvcc printed may be one of the architecture."""
    errors = [line for line in said.splitlines() if _error.search(line)]
    return any(_of_an_architecture.search(line) for line in errors)


def _rewritten(nvcc: str, words: list[str], arch: str, number: int, report: Path) -> None:
    """Compiles for another architecture. Raises BuildFailed and RetargetError."""
    from nvfp4.retarget import rewrite, target_of

    target = str(target_of(divmod(number, 10)))
    found: list[dict[str, Any]] = []

    def translate(ptx: str) -> str:
        result = rewrite(ptx, target)
        found.extend(result.report.entries())
        return result.ptx

    build_translated(nvcc, words, arch, target, translate)
    report.write_text(json.dumps(found), encoding="utf-8")


def main(arguments: list[str]) -> int:
    """The exit code."""
    retarget, arch, number, _, nvcc, *words = arguments
    if not compiles(words):
        return subprocess.run([nvcc, *words]).returncode
    report = Path(f"{output_of(words) or 'a.o'}{REPORT}")
    report.unlink(missing_ok=True)
    said = ""
    if retarget == "auto" and _fits(flags.split_architectures(words)[1], int(number)):
        ended = subprocess.run([nvcc, *words], capture_output=True, text=True, errors="replace")
        said = ended.stderr + ended.stdout
        if not ended.returncode or not fits_not(said):
            print(said, end="", file=sys.stderr)
            return ended.returncode
    from nvfp4.retarget import RetargetError

    try:
        _rewritten(nvcc, words, arch, int(number), report)
    except BuildFailed as failed:
        print(said or failed, file=sys.stderr)
        return 1
    except RetargetError as refused:
        print(f"error: {refused}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
