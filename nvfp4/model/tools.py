"""NVIDIA's programs for machine code, and the assembler's report on a kernel of PTX."""

import importlib.util
import os
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

from nvfp4.records.base import Record

_limit_s = 60
_registers = re.compile(r"Used (\d+) registers")
_stack = re.compile(r"(\d+) bytes stack frame")
_spilled = re.compile(r"(\d+) bytes spill stores, (\d+) bytes spill loads")
_error = re.compile(r"(?:error|fatal)\s*: (.*)")
_too_old = re.compile(r"Unsupported \.version|is not defined for option|0xc000 max")
_FILE = re.compile(r'^(\s*\.file\s+\d+\s+").*("(?:\s*,\s*\d+)*\s*)$', re.MULTILINE)
_target = re.compile(r"^\s*\.target\s+(sm_\w+)", re.MULTILINE)

_of_triton = "backends/nvidia/bin"

BROUGHT_BY = {"ptxas": "nvidia-cuda-nvcc-cu12", "nvdisasm": "nvidia-cuda-nvdisasm"}
"""The packages that nvfp4 requires to get a program."""


class MachineCode(Record):
    """Registers and spilled bytes of a kernel; None if unknown."""

    registers: int | None = None
    spilled_bytes: int | None = None
    stack_bytes: int = 0
    """Local memory of a thread."""
    refusal: str | None = None
    """The first error of an assembler that knows the architecture."""
    unknown: bool = False
    """Whether every assembler of this machine is too old to decide."""


def tools(name: str) -> list[Path]:
    """Find a program of the CUDA toolkit in PATH, the toolkit, pip's wheels and Triton."""
    found = [Path(path) for path in [shutil.which(name)] if path]
    homes = [os.environ.get(variable) for variable in ("CUDA_HOME", "CUDA_PATH")]
    found += [Path(home, "bin", name) for home in (*homes, "/usr/local/cuda") if home]
    wheels = (("nvidia", "cu[0-9]*/bin"), ("nvidia", "cuda_nvcc/bin"), ("triton", _of_triton))
    for package, pattern in wheels:
        spec = importlib.util.find_spec(package)
        for folder in (spec.submodule_search_locations or []) if spec else []:
            for bin_folder in sorted(Path(folder).glob(pattern), reverse=True):
                found += [bin_folder / name, bin_folder / f"{name}-blackwell"]
    return [path for path in dict.fromkeys(found) if os.access(path, os.X_OK)]


def assemble(ptx: str, entry: str) -> MachineCode:
    """Return what the assembler prints about a kernel of a PTX text; empty if there is no
    assembler."""
    target = target_of(ptx)
    if target is None:
        return MachineCode(unknown=True)
    assemblers, refusal = tools("ptxas"), None
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder, "kernel.ptx")
        # No assembler takes a name with a quotation mark or other letters than ASCII's.
        source.write_text(_FILE.sub(r"\1file\2", ptx), encoding="utf-8")
        for ptxas in assemblers:
            words = [str(ptxas), "-v", f"-arch={target}", "-o", os.devnull, str(source)]
            taken, said = ended(words)
            if taken:
                return of_entry(said, entry)
            errors = _error.findall(said)
            if errors and not _too_old.search(said):
                refusal = refusal or errors[0]
    return MachineCode(refusal=refusal, unknown=bool(assemblers) and refusal is None)


def target_of(ptx: str) -> str | None:
    """Return the architecture that a PTX text names."""
    found = _target.search(ptx)
    return found[1] if found else None


def ended(words: list[str]) -> tuple[bool, str]:
    """Run a program; return whether it succeeds, and its output."""
    try:
        done = subprocess.run(words, capture_output=True, text=True, timeout=_limit_s)
    except (OSError, subprocess.TimeoutExpired):
        return False, ""
    return not done.returncode, done.stdout + done.stderr


def of_entry(said: str, entry: str) -> MachineCode:
    """Return what the output of `ptxas -v` says of a kernel."""
    after = said.partition(f"'{entry}' for")[2]
    registers, spilled = _registers.search(after), _spilled.search(after)
    stack = _stack.search(said.partition(f"properties for {entry}")[2])
    return MachineCode(
        int(registers[1]) if registers else None,
        int(spilled[1]) + int(spilled[2]) if spilled else None,
        int(stack[1]) if stack else 0,
    )
