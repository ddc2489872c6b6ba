"""Called as nvcc, for a GPU that the source may not be written for.

    nvcc.py auto|always ARCH NUMBER RULES NVCC ARGUMENTS...

ARCH: what is compiled for before it is rewritten. NUMBER: this GPU's architecture, such as 90.
RULES: an identity of what rewrites; it is there so that a build with other rules is another
command. auto: compiled as it is, and rewritten where the arguments name no code for this GPU or
compiling fails because of the architecture. What was rewritten is listed in a JSON file beside the
object.

nvcc names its steps (--dryrun), and they are run here one by one. Only two differ: ptxas gets the
rewritten text and, as fatbinary, the name of another architecture. So each option reaches the step
that it is for, and the host code is nvcc's own.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from nvfp4.capture.cuda.flags import device_linking, options, split_architectures
from nvfp4.capture.device import runs_on
from nvfp4.records.launch_errors import CaptureError
from nvfp4.retarget.extensions import REPORT

_error = re.compile(r"\b(error|fatal)\b", re.IGNORECASE)
_of_an_architecture = re.compile(
    r"\.target\b|\bsm_\d+|\bcompute_\d+|\barch|__CUDA_ARCH|blackwell|is undefined|no instance of"
    r"|modifier|instruction types|unknown instruction|PTX ISA",
    re.IGNORECASE,
)


_VARIABLE = re.compile(r"(\w+)=(.*)")
_TOOL = re.compile(r'^"?(?:[^\s"]*/)?(\w[\w+]*)"? ')
_WRITES_DEPENDENCIES = (
    *("-MD", "-MMD", "--generate-dependencies-with-compile"),
    "--generate-nonsystem-dependencies-with-compile",
)
_DEPENDENCY_FILE = ("-MF", "--dependency-output")
_OUTPUT = ("-o", "--output-file")


class BuildFailed(CaptureError):
    """A step failed; what it printed stands on stderr, unless the message is not empty."""

    verdict_code = "build.failed"


def compiles(words: Sequence[str]) -> bool:
    """Whether nvcc is asked to make an object of a source."""
    return "-c" in words or "--compile" in words or device_linking(words) is not None


def output_of(words: Sequence[str]) -> Path | None:
    """The object that nvcc is asked to write."""
    return _value(words, _OUTPUT)


def build_translated(
    nvcc: str, words: Sequence[str], arch: str, target: str, translate: Callable[[str], str]
) -> None:
    """Does what nvcc would do with its arguments, for `target` and through PTX of `arch`.

    translate: PTX of the one as PTX of the other. Raises BuildFailed, and what it raises.
    """
    linked = device_linking(words)
    if linked:
        raise BuildFailed(f"{linked}: device code that is linked later cannot be retargeted")
    with tempfile.TemporaryDirectory(prefix="nvcc-") as kept:
        steps, environment = _dry_run(nvcc, words, arch, kept)
        dependencies = _value(words, _DEPENDENCY_FILE)
        assembled = False
        for step in steps:
            tool = _TOOL.match(step)
            name = tool[1] if tool else ""
            if name == "ptxas":
                (text,) = [Path(word) for word in shlex.split(step) if word.endswith(".ptx")]
                text.write_text(translate(text.read_text(errors="surrogateescape")))
                step, assembled = _for_target(step, arch, target), True
            elif name == "fatbinary":
                step = _for_target(step, arch, target)
            elif dependencies and " -E " in step:
                # nvcc writes them itself, in no step of its own.
                step += f" -MD -MF {shlex.quote(str(dependencies))}"
                step += f" -MT {shlex.quote(str(output_of(words)))}"
                dependencies = None
            if subprocess.run(step, shell=True, env=environment).returncode:
                raise BuildFailed("")
        if not assembled:
            raise BuildFailed("nvcc's steps are not those that are known: it calls no ptxas")


def _dry_run(
    nvcc: str, words: Sequence[str], arch: str, kept: str
) -> tuple[list[str], dict[str, str]]:
    """Commands for a shell, and the environment in which nvcc runs them."""
    environment = dict(os.environ)
    before, after = (
        shlex.split(environment.pop(name, ""))
        for name in ("NVCC_PREPEND_FLAGS", "NVCC_APPEND_FLAGS")
    )
    others, _ = split_architectures([*before, *words, *after])
    virtual = arch.replace("sm_", "compute_")
    command = [
        *(nvcc, "--dryrun", *_without_dependencies(others)),
        # Lines of the source, for what cannot be translated.
        *(f"-gencode=arch={virtual},code={arch}", "-lineinfo"),
        *("--keep", "--keep-dir", kept),
    ]
    ended = subprocess.run(command, env=environment, capture_output=True, text=True)
    said = (ended.stderr + ended.stdout).splitlines()
    if ended.returncode:
        errors = [line for line in said if not line.startswith("#$ ")]
        raise BuildFailed("\n".join(errors) or "nvcc cannot say what it would do")
    steps = []
    for line in (line[3:].strip("\n") for line in said if line.startswith("#$ ")):
        variable = _VARIABLE.fullmatch(line)
        if variable:
            environment[variable[1]] = variable[2]
        elif not line.startswith("--"):  # what nvcc does by itself
            steps.append(line)
    return steps, environment


def _for_target(step: str, arch: str, target: str) -> str:
    number, wanted = arch.removeprefix("sm_"), target.removeprefix("sm_")
    return re.sub(rf"\b(arch=sm_|sm=|profile=sm_|gpu-name=sm_){number}\b", rf"\g<1>{wanted}", step)


def _without_dependencies(words: Sequence[str]) -> list[str]:
    others = [word for name, word in options(words, _DEPENDENCY_FILE) if not name]
    return [word for word in others if word not in _WRITES_DEPENDENCIES]


def _value(words: Sequence[str], names: tuple[str, ...]) -> Path | None:
    """The value of an argument that has one; as nvcc, the last counts."""
    values = [value for name, value in options(words, names) if name]
    return Path(values[-1]) if values else None


def _fits(codes: list[str], number: int) -> bool:
    """Whether the GPU runs one of the codes that the arguments name, or none is named."""
    return not codes or any(runs_on(code, divmod(number, 10)) for code in codes)


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
    if retarget == "auto" and _fits(split_architectures(words)[1], int(number)):
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
