"""nvcc's own steps, as `nvcc --dryrun` names them, run here: the host's beside the device's.

nvcc runs them one after the other. Of a file with torch's headers two take most of the time, that
of the host (cudafe++) and that of the device (cicc). They read the same source and would not wait
for each other but for one file: cudafe++ writes the name of the module, which keeps apart symbols
that are local to it, and cicc reads that. Here the name is written beforehand. So the commands, and
the code that they make, are nvcc's.
"""

import hashlib
import os
import re
import shlex
import subprocess
import tempfile
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from nvfp4.capture.cuda.compilers import by_source
from nvfp4.capture.cuda.flags import options
from nvfp4.records.launch_errors import CaptureError

Prepare = Callable[[str, str], str]
"""Is given a step's tool and command before it runs, and returns the command."""

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
    """The object that nvcc is asked to write."""
    return _value(words, _OUTPUT)


def run_steps(
    nvcc: str,
    words: Sequence[str],
    environment: Mapping[str, str] | None = None,
    prepare: Prepare = lambda tool, step: step,
) -> str:
    """Does what nvcc would do with its arguments, and returns what it would print. Raises
    BuildFailed, and what ``prepare`` raises.
    """
    with tempfile.TemporaryDirectory(prefix="nvcc-") as kept:
        found = _dry_run(nvcc, words, kept, {**os.environ, **(environment or {})})
        dependencies = _value(words, _DEPENDENCY_FILE)
        if dependencies:
            # nvcc writes them itself, in no step of its own.
            more = f" -MD -MF {shlex.quote(str(dependencies))}"
            more += f" -MT {shlex.quote(str(output_of(words)))}"
            reads = [n for n, step in enumerate(found.commands) if " -E " in step]
            for first in reads[:1]:
                found.commands[first] += more
        host, device, last = _parted(found.commands)
        with ThreadPoolExecutor(1) as beside:
            of_device = beside.submit(found.run, device, prepare)
            try:
                said = found.run(host, prepare)  # where both fail, nvcc would get no further
                return found.said + said + of_device.result() + found.run(last, prepare)
            except BuildFailed as failed:
                raise BuildFailed(by_source(str(failed), Path(kept))) from None


@dataclass
class _Steps:
    """commands: for a shell, in nvcc's order. said: warnings of nvcc itself."""

    commands: list[str]
    environment: dict[str, str]
    said: str

    def run(self, commands: Sequence[str], prepare: Prepare) -> str:
        """Runs some in order, and returns what they print. Raises BuildFailed."""
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
    """Steps of the host and of the device, which need not wait for each other, and those that need
    both; where nvcc is one that takes other steps, all of them are the last.
    """
    tools = [_tool_of(step) for step in commands]
    if tools.count("cudafe++") != 1:
        return [], [], commands
    parts = tools.index("cudafe++")
    named = _NAMES_MODULE.search(commands[parts])
    if named is None or "cicc" in tools[:parts] or tools[-1] in ("cicc", "ptxas", "fatbinary"):
        return [], [], commands
    Path(named[1]).write_text(_module_name(commands[-1]), encoding="utf-8")
    splits = _NAMES_MODULE.sub(r'--module_id_file_name "\1"', commands[parts])
    return [*commands[:parts], splits], commands[parts + 1 : -1], commands[-1:]


def _module_name(step: str) -> str:
    """One that no other object of this folder has, and the next build has again. step: that writes
    the object."""
    written = _value(shlex.split(step), _OUTPUT)
    digest = hashlib.sha256(f"{Path.cwd()}/{written}".encode()).hexdigest()
    return f"_{digest[:8]}_7_cuda_cu_{digest[8:16]}"


def _tool_of(step: str) -> str:
    found = _TOOL.match(step)
    return found[1] if found else ""


def _value(words: Sequence[str], names: tuple[str, ...]) -> Path | None:
    """The value of an argument that has one; as nvcc, the last counts."""
    values = [value for name, value in options(words, names) if name]
    return Path(values[-1]) if values else None
