"""nvcc's compilation of a file, with the PTX translated on its way to the assembler.

nvcc names its steps (--dryrun), and they are run here one by one. Only two differ: ptxas gets the
translated text and, as fatbinary, the name of another architecture. So each option reaches the step
that it is for, and the host code is nvcc's own.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from nvfp4.capture.cuda import flags
from nvfp4.records.launch_errors import CaptureError

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
    return "-c" in words or "--compile" in words or flags.device_linking(words) is not None


def output_of(words: Sequence[str]) -> Path | None:
    """The object that nvcc is asked to write."""
    return _value(words, _OUTPUT)


def build_translated(
    nvcc: str, words: Sequence[str], arch: str, target: str, translate: Callable[[str], str]
) -> None:
    """Does what nvcc would do with its arguments, for `target` and through PTX of `arch`.

    translate: PTX of the one as PTX of the other. Raises BuildFailed, and what it raises.
    """
    linked = flags.device_linking(words)
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
    others, _ = flags.split_architectures([*before, *words, *after])
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
    others, left = [], iter(words)
    for word in left:
        if word.partition("=")[0] in _DEPENDENCY_FILE:
            if "=" not in word:
                next(left, None)
        elif word not in _WRITES_DEPENDENCIES:
            others.append(word)
    return others


def _value(words: Sequence[str], names: tuple[str, ...]) -> Path | None:
    """The value of an argument that has one; as nvcc, the last counts."""
    found = None
    for word, following in zip(words, [*words[1:], ""], strict=True):
        name, equals, value = word.partition("=")
        if name in names:
            found = Path(value if equals else following)
    return found
