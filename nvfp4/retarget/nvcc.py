"""Called as nvcc, for a GPU that the source may not be written for.

    nvcc.py auto|never ARCH NUMBER RULES NVCC ARGUMENTS...

ARCH: what is compiled for before it is rewritten. NUMBER: this GPU's architecture, such as 90.
RULES: an identity of what rewrites; it is there so that a build with other rules is another
command. auto: compiled as it is, and rewritten where the arguments name no code for this GPU or
compiling fails because of the architecture; never: compiled as it is, in less time. What was
rewritten is listed in a JSON file beside the object.

nvcc names its steps, and they are run here (`nvcc_steps`). Of a rewritten file only two differ:
ptxas gets the rewritten text and, as fatbinary, the name of another architecture. So each option
reaches the step that it is for, and the host code is nvcc's own.
"""

import contextlib
import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from nvfp4.capture.cuda.architectures import fits, split_architectures
from nvfp4.capture.cuda.flags import device_linking
from nvfp4.retarget.extensions import REPORT
from nvfp4.retarget.nvcc_steps import BuildFailed, UnknownSteps, output_of, run_steps

_FLAGS = ("NVCC_PREPEND_FLAGS", "NVCC_APPEND_FLAGS")

_error = re.compile(r"\b(error|fatal)\b", re.IGNORECASE)
_of_an_architecture = re.compile(
    r"\.target\b|\bsm_\d+|\bcompute_\d+|\barch|__CUDA_ARCH|blackwell|is undefined|no instance of"
    r"|modifier|instruction types|unknown instruction|PTX ISA",
    re.IGNORECASE,
)


def compiles(words: Sequence[str]) -> bool:
    """Whether nvcc is asked to make an object of a source."""
    return "-c" in words or "--compile" in words or device_linking(words) is not None


def build_translated(
    nvcc: str, words: Sequence[str], arch: str, target: str, translate: Callable[[str], str]
) -> str:
    """Does what nvcc would do with its arguments, for `target` and through PTX of `arch`, and
    returns what it would print.

    translate: PTX of the one as PTX of the other. Raises BuildFailed, and what it raises.
    """
    linked = device_linking(words)
    if linked:
        raise BuildFailed(f"{linked}: device code that is linked later cannot be retargeted")
    before, after = (shlex.split(os.environ.get(name, "")) for name in _FLAGS)
    others, _ = split_architectures([*before, *words, *after])
    virtual = arch.replace("sm_", "compute_")
    # Lines of the source, for what cannot be translated.
    others += [f"-gencode=arch={virtual},code={arch}", "-lineinfo"]
    assembled = False

    def prepare(tool: str, step: str) -> str:
        nonlocal assembled
        if tool == "ptxas":
            (text,) = [Path(word) for word in shlex.split(step) if word.endswith(".ptx")]
            text.write_text(translate(text.read_text(errors="surrogateescape")))
            assembled = True
        return _for_target(step, arch, target) if tool in ("ptxas", "fatbinary") else step

    said = run_steps(nvcc, others, dict.fromkeys(_FLAGS, ""), prepare)
    if not assembled:
        raise BuildFailed("nvcc's steps are not those that are known: it calls no ptxas")
    return said


def _for_target(step: str, arch: str, target: str) -> str:
    number, wanted = arch.removeprefix("sm_"), target.removeprefix("sm_")
    return re.sub(rf"\b(arch=sm_|sm=|profile=sm_|gpu-name=sm_){number}\b", rf"\g<1>{wanted}", step)


def fits_not(said: str) -> bool:
    """Whether an error among what nvcc printed may be one of the architecture."""
    errors = [line for line in said.splitlines() if _error.search(line)]
    return any(_of_an_architecture.search(line) for line in errors)


def _rewritten(nvcc: str, words: list[str], arch: str, number: int, report: Path) -> str:
    """Compiles for another architecture, and returns what nvcc would print. Raises BuildFailed and
    RetargetError."""
    from nvfp4.retarget.rewrite import rewrite
    from nvfp4.retarget.targets import target_of

    target = str(target_of(divmod(number, 10)))
    found: list[dict[str, Any]] = []

    def translate(ptx: str) -> str:
        result = rewrite(ptx, target)
        found.extend(result.report.entries())
        return result.ptx

    said = build_translated(nvcc, words, arch, target, translate)
    report.write_text(json.dumps(found), encoding="utf-8")
    return said


def _natively(nvcc: str, words: list[str]) -> str:
    """Compiles as asked for, and returns what nvcc prints. Raises BuildFailed."""
    if device_linking(words) is None:
        with contextlib.suppress(UnknownSteps):
            try:
                return run_steps(nvcc, words)
            except BuildFailed as failed:
                if "ptxas " not in str(failed):
                    raise
                return run_steps(nvcc, [*words, "-lineinfo"])  # fails with lines of the source
    ended = subprocess.run([nvcc, *words], capture_output=True, text=True, errors="replace")
    said = ended.stderr + ended.stdout
    if ended.returncode:
        raise BuildFailed(said)
    return said


def main(arguments: list[str]) -> int:
    """The exit code."""
    retarget, arch, number, _, nvcc, *words = arguments
    if not compiles(words):
        return subprocess.run([nvcc, *words]).returncode
    report = Path(f"{output_of(words) or 'a.o'}{REPORT}")
    report.unlink(missing_ok=True)
    said = ""
    natively = fits(words, int(number))
    if natively or retarget == "never":
        try:
            print(_natively(nvcc, words), end="", file=sys.stderr)
            return 0
        except BuildFailed as failed:
            said = str(failed)
            if retarget == "never" or not fits_not(said):
                print(said, end="", file=sys.stderr)
                return 1
    from nvfp4.retarget.errors import RetargetError

    try:
        print(_rewritten(nvcc, words, arch, int(number), report), end="", file=sys.stderr)
    except BuildFailed as failed:
        print(said or failed, file=sys.stderr)
        return 1
    except RetargetError as refused:
        print(f"error: {refused}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
