"""Called as nvcc, for a GPU that the source may not be written for.

    nvcc.py auto|never ARCH NUMBER RULES NVCC ARGUMENTS...

ARCH: what is compiled for before it is rewritten. NUMBER: this GPU's architecture, such as 90.
RULES: an identity of what rewrites; it is there so that a build with other rules is another
command. auto: compiled as it is, and rewritten where the arguments name no code for this GPU or
compiling fails because of the architecture; never: compiled as it is, in less time. What was
rewritten is listed in a JSON file beside the object.

nvcc names its steps, which run here, the host's beside the device's. Of a rewritten file only
two differ: ptxas gets the rewritten text and, as fatbinary, the name of another architecture. So
each option reaches the step that it is for, and the host code is nvcc's own.
"""

import contextlib
import hashlib
import json
import os
import re
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from nvfp4.capture.cuda.architectures import fits, names, split_architectures
from nvfp4.capture.cuda.compilers import by_source
from nvfp4.capture.cuda.flags import OF_NVCC, device_linking, options
from nvfp4.records.base import Record
from nvfp4.records.launch_errors import CaptureError
from nvfp4.retarget.extensions import REPORT

Prepare = Callable[[str, str], str]
"""Takes the tool and the command of a step before it runs, and returns the command to run."""

_VARIABLE = re.compile(r"(\w+)=(.*)")
_TOOL = re.compile(r'^"?(?:[^\s"]*/)?(\w[\w+]*)"? ')
_WRITES_DEPENDENCIES = (
    *("-MD", "-MMD", "--generate-dependencies-with-compile"),
    "--generate-nonsystem-dependencies-with-compile",
)
_DEPENDENCY_FILE = ("-MF", "--dependency-output")
_OUTPUT = ("-o", "--output-file")

_NAMES_MODULE = re.compile(r'--gen_module_id_file --module_id_file_name "([^"]*)"')


class BuildFailed(CaptureError):
    """A step of nvcc failed; the message is what it printed."""

    verdict_code = "build.failed"


class UnknownSteps(BuildFailed):
    """nvcc does not say what it would do; the message may say why."""


def output_of(words: Sequence[str]) -> Path | None:
    """Return the object file that nvcc is asked to write."""
    return _value(words, _OUTPUT)


def run_steps(
    nvcc: str,
    words: Sequence[str],
    environment: Mapping[str, str] | None = None,
    prepare: Prepare = lambda tool, step: step,
) -> str:
    """Do what nvcc would do with its arguments, and return what it would print. Raises
    BuildFailed, and what ``prepare`` raises.

    nvcc runs its steps one after the other. For a file with torch's headers two take most of the
    time, that of the host (cudafe++) and that of the device (cicc). They read the same source and
    would not wait for each other but for one file: cudafe++ writes the name of the module, which
    keeps apart symbols that are local to it, and cicc reads that. Here the name is written
    beforehand, so that the two run side by side. The commands, and the code that they make, are
    nvcc's.
    """
    with tempfile.TemporaryDirectory(prefix="nvcc-") as kept:
        found = _dry_run(nvcc, words, kept, {**os.environ, **(environment or {})})
        dependencies = _value(words, _DEPENDENCY_FILE)
        if dependencies:
            # nvcc writes them itself, in no step of its own.
            more = f" -MD -MF {shlex.quote(str(dependencies))}"
            more += f" -MT {shlex.quote(str(output_of(words)))}"
            for first in [n for n, step in enumerate(found.commands) if " -E " in step][:1]:
                found.commands[first] += more
        host, device, last = _parted(found.commands)
        with ThreadPoolExecutor(1) as beside:
            of_device = beside.submit(found.run, device, prepare)
            try:
                said = found.run(host, prepare)  # where both fail, nvcc would get no further
                return found.said + said + of_device.result() + found.run(last, prepare)
            except BuildFailed as failed:
                raise BuildFailed(by_source(str(failed), Path(kept))) from None


class _Steps(Record, frozen=False):
    """The steps of an nvcc command."""

    commands: list[str]
    """Shell commands in nvcc's order."""
    environment: dict[str, str]
    said: str
    """Warnings of nvcc itself."""

    def run(self, commands: Sequence[str], prepare: Prepare) -> str:
        """Run some of the commands in order, and return what they print. Raises BuildFailed."""
        said = ""
        for step in commands:
            ended = subprocess.run(
                prepare(_tool_of(step), step),
                shell=True,
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                errors="replace",
            )
            said += ended.stdout
            if ended.returncode:
                raise BuildFailed(said or f"{_tool_of(step)} ended with {ended.returncode}")
        return said


def _dry_run(nvcc: str, words: Sequence[str], kept: str, environment: dict[str, str]) -> _Steps:
    others = [word for name, word in options(words, _DEPENDENCY_FILE) if not name]
    others = [word for word in others if word not in _WRITES_DEPENDENCIES]
    command = [nvcc, "--dryrun", *others, "--keep", "--keep-dir", kept]
    ended = subprocess.run(command, env=environment, capture_output=True, text=True)
    lines = (ended.stderr + ended.stdout).splitlines()
    said = "".join(f"{line}\n" for line in lines if not line.startswith("#$ "))
    if ended.returncode:
        raise UnknownSteps(said or "nvcc cannot say what it would do")
    steps = _Steps([], dict(environment), said)
    for line in (line[3:].strip("\n") for line in lines if line.startswith("#$ ")):
        variable = _VARIABLE.fullmatch(line)
        if variable:
            steps.environment[variable[1]] = variable[2]
        elif not line.startswith("--"):  # what nvcc does by itself
            steps.commands.append(line)
    return steps


def _parted(commands: list[str]) -> tuple[list[str], list[str], list[str]]:
    """Split the steps into those of the host, those of the device, which are independent, and those
    that need both.

    If this nvcc takes other steps, all of them are in the last part.
    """
    tools = [_tool_of(step) for step in commands]
    if tools.count("cudafe++") != 1:
        return [], [], commands
    parts = tools.index("cudafe++")
    named = _NAMES_MODULE.search(commands[parts])
    if named is None or "cicc" in tools[:parts] or tools[-1] in ("cicc", "ptxas", "fatbinary"):
        return [], [], commands
    # A name that no other object file of this folder has, and that the next build gives again.
    written = _value(shlex.split(commands[-1]), _OUTPUT)
    digest = hashlib.sha256(f"{Path.cwd()}/{written}".encode()).hexdigest()
    Path(named[1]).write_text(f"_{digest[:8]}_7_cuda_cu_{digest[8:16]}", encoding="utf-8")
    splits = _NAMES_MODULE.sub(r'--module_id_file_name "\1"', commands[parts])
    return [*commands[:parts], splits], commands[parts + 1 : -1], commands[-1:]


def _tool_of(step: str) -> str:
    found = _TOOL.match(step)
    return found[1] if found else ""


def _value(words: Sequence[str], names: tuple[str, ...]) -> Path | None:
    """Return the value of an argument that has one; as for nvcc, the last counts."""
    values = [value for name, value in options(words, names) if name]
    return Path(values[-1]) if values else None


_error = re.compile(r"\b(error|fatal)\b", re.IGNORECASE)
_of_an_architecture = re.compile(
    r"\.target\b|\bsm_\d+|\bcompute_\d+|\barch|__CUDA_ARCH|blackwell|is undefined|no instance of"
    r"|modifier|instruction types|unknown instruction|PTX ISA",
    re.IGNORECASE,
)


def compiles(words: Sequence[str]) -> bool:
    """Return whether nvcc is asked to compile a source to an object."""
    return "-c" in words or "--compile" in words or device_linking(words) is not None


def build_translated(
    nvcc: str, words: Sequence[str], arch: str, target: str, translate: Callable[[str], str]
) -> str:
    """Do what nvcc would do with its arguments, for `target` and through PTX of `arch`, and
    return what it would print.

    translate: turns PTX of `arch` into PTX of `target`. Raises BuildFailed, and what `translate`
    raises.
    """
    linked = device_linking(words)
    if linked:
        raise BuildFailed(f"{linked}: device code that is linked later cannot be retargeted")
    before, after = (shlex.split(os.environ.get(name, "")) for name in OF_NVCC)
    others, _ = split_architectures([*before, *words, *after])
    virtual = arch.replace("sm_", "compute_")
    # Lines of the source, for what cannot be translated.
    others += [f"-gencode=arch={virtual},code={arch}", "-lineinfo"]
    number, own = arch.removeprefix("sm_"), target.removeprefix("sm_")
    arch_of = re.compile(rf"\b(arch=sm_|sm=|profile=sm_|gpu-name=sm_){number}\b")
    assembled = False

    def prepare(tool: str, step: str) -> str:
        nonlocal assembled
        if tool == "ptxas":
            (text,) = [Path(word) for word in shlex.split(step) if word.endswith(".ptx")]
            text.write_text(translate(text.read_text(errors="surrogateescape")))
            assembled = True
        return arch_of.sub(rf"\g<1>{own}", step) if tool in ("ptxas", "fatbinary") else step

    said = run_steps(nvcc, others, dict.fromkeys(OF_NVCC, ""), prepare)
    if not assembled:
        raise BuildFailed("nvcc's steps are not those that are known: it calls no ptxas")
    return said


def fits_not(said: str) -> bool:
    """Return whether nvcc's output has an error that may be due to the architecture."""
    lines = [line for line in said.splitlines() if not line.startswith("nvcc fatal")]  # of flags
    errors = [line for line in lines if _error.search(line)]
    return any(_of_an_architecture.search(line) for line in errors)


def _rewritten(nvcc: str, words: list[str], arch: str, number: int, report: Path) -> str:
    """Compile for another architecture, and return what nvcc would print. Raises BuildFailed and
    RetargetError."""
    from nvfp4.retarget.rewrite import rewrite
    from nvfp4.retarget.targets import target_of

    target = str(target_of(divmod(number, 10)))
    found: list[dict[str, Any]] = []

    def translate(ptx: str) -> str:
        result = rewrite(ptx, target)
        found.extend(result.entries())
        return result.ptx

    said = build_translated(nvcc, words, arch, target, translate)
    report.write_text(json.dumps(found), encoding="utf-8")
    return said


def _natively(nvcc: str, words: list[str]) -> str:
    """Compile as asked for, and return what nvcc prints. Raises BuildFailed."""
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
    """Build as asked, and return the exit code."""
    retarget, arch, number, _, nvcc, *words = arguments
    if not compiles(words):
        return subprocess.run([nvcc, *words]).returncode
    report = Path(f"{output_of(words) or 'a.o'}{REPORT}")
    report.unlink(missing_ok=True)
    said, suits = "", fits(words, int(number))
    try:
        if suits or retarget == "never":
            print(_natively(nvcc, words), end="", file=sys.stderr)
            return 0
        _dry_run(nvcc, words, os.curdir, dict(os.environ))  # a flag may be one that nvcc refuses
    except BuildFailed as failed:
        said = str(failed)
        elsewhere = suits and not names(words, int(number))
        if retarget == "never" or elsewhere or not fits_not(said):  # elsewhere it fails, too
            print(said, end="", file=sys.stderr)
            return 1
    from nvfp4.retarget.errors import RetargetError

    try:
        print(_rewritten(nvcc, words, arch, int(number), report), end="", file=sys.stderr)
        return 0
    except BuildFailed as failed:
        print(said or failed, file=sys.stderr)
    except RetargetError as refused:
        print(f"error: {refused}", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
