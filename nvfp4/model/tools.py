"""Results of NVIDIA's assembler for PTX: registers of each kernel, and SASS by line of source."""

import importlib.util
import os
import re
import shutil
import subprocess
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

_limit_s = 60
_registers = re.compile(r"Used (\d+) registers")
_stack = re.compile(r"(\d+) bytes stack frame")
_spilled = re.compile(r"(\d+) bytes spill stores, (\d+) bytes spill loads")
_error = re.compile(r"(?:error|fatal)\s*: (.*)")
_too_old = re.compile(r"Unsupported \.version|is not defined for option|0xc000 max")
_target = re.compile(r"^\s*\.target\s+(sm_\w+)", re.MULTILINE)
_line = re.compile(r'^\s*//## File "([^"]*)", line (\d+)( inlined at)?')
_instruction = re.compile(r"^\s*/\*([0-9a-f]{4,})\*/\s+(\S.*?)\s*;")

_of_triton = "backends/nvidia/bin"

BROUGHT_BY = {"ptxas": "nvidia-cuda-nvcc-cu12", "nvdisasm": "nvidia-cuda-nvdisasm"}
"""The packages that nvfp4 requires for the sake of a program."""


def is_missing(name: str) -> str:
    """Return a sentence that says what brings a program."""
    return f"{name} is missing; pip install {BROUGHT_BY[name]} brings it"


@dataclass(frozen=True)
class SassLine:
    """An instruction of the machine. file, line: of the source, None where they are not known."""

    file: str | None
    line: int | None
    text: str


@dataclass(frozen=True)
class MachineCode:
    """registers, spilled_bytes: of a kernel, None without an assembler. missing: why there is no
    SASS though it was asked for. refusal: what the assembler has against the PTX. unknown: whether
    every assembler here is too old to say.
    """

    registers: int | None = None
    spilled_bytes: int | None = None
    sass: list[SassLine] = field(default_factory=list)
    missing: str | None = None
    refusal: str | None = None
    unknown: bool = False


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


def assemble(ptx: str, entry: str, with_sass: bool) -> MachineCode:
    """The machine code of a kernel of a PTX text."""
    target = target_of(ptx)
    if target is None:
        return MachineCode(missing="no SASS: the PTX names no architecture", unknown=True)
    assemblers = tools("ptxas")
    with tempfile.TemporaryDirectory() as folder:
        source, cubin = Path(folder, "kernel.ptx"), Path(folder, "kernel.cubin")
        source.write_text(ptx, encoding="utf-8")
        refusal = None
        for ptxas in assemblers:
            words = [str(ptxas), "-v", "-lineinfo", f"-arch={target}", "-o", str(cubin)]
            taken, said = ended([*words, str(source)])
            if not taken:
                refusal = refusal or _refusal(said)
                continue
            registers, spilled = of_entry(said, entry)
            code = MachineCode(registers, spilled)
            if with_sass:
                sass, missing = _disassembled(cubin, entry)
                code = MachineCode(registers, spilled, sass, missing)
            return code
    if assemblers:
        missing = "no SASS: ptxas refuses the PTX; a newer one may know it"
        return MachineCode(missing=missing, refusal=refusal, unknown=refusal is None)
    return MachineCode(missing=f"no SASS: {is_missing('ptxas')}")


def target_of(ptx: str) -> str | None:
    """The architecture that a PTX text names."""
    found = _target.search(ptx)
    return found[1] if found else None


def ended(words: list[str]) -> tuple[bool, str]:
    """Run a program; return whether it succeeds, and its output."""
    try:
        done = subprocess.run(words, capture_output=True, text=True, timeout=_limit_s)
    except (OSError, subprocess.TimeoutExpired):
        return False, ""
    return not done.returncode, done.stdout + done.stderr


def ran(words: list[str]) -> str | None:
    """Run a program and return its output; None if it fails."""
    succeeded, said = ended(words)
    return said if succeeded else None


def _refusal(said: str) -> str | None:
    """The first error that ptxas prints; None if it is too old to judge the PTX."""
    errors = _error.findall(said)
    return None if not errors or _too_old.search(said) else errors[0]


def of_entry(said: str, entry: str) -> tuple[int | None, int | None]:
    """Registers and spilled bytes of a kernel, in the output of `ptxas -v`."""
    _, _, after = said.partition(f"'{entry}' for")
    registers, spilled = _registers.search(after), _spilled.search(after)
    return (
        int(registers[1]) if registers else None,
        int(spilled[1]) + int(spilled[2]) if spilled else None,
    )


def stack_bytes(said: str, entry: str) -> int:
    """Bytes of local memory of a thread of a kernel, in the output of `ptxas -v`."""
    stack = _stack.search(said.partition(f"properties for {entry}")[2])
    return int(stack[1]) if stack else 0


def _disassembled(cubin: Path, entry: str) -> tuple[list[SassLine], str | None]:
    programs = tools("nvdisasm")
    for nvdisasm in programs:
        text = ran([str(nvdisasm), "-g", "-c", str(cubin)])
        if text is not None:
            return read_sass(text, entry), None
    if programs:
        return [], "no SASS: nvdisasm does not know this architecture; a newer one may"
    return [], f"no SASS: {is_missing('nvdisasm')}"


def read_sass(text: str, entry: str, own: str = "submission.py") -> list[SassLine]:
    """Return the instructions of a kernel in the output of `nvdisasm -g`, with their source lines.

    For inlined code, the line is the innermost one in the file called `own`.
    """
    found: list[SassLine] = []
    inside = False
    chain: list[tuple[str, int]] = []
    fresh = True
    for line in text.split("\n"):
        if ".section" in line or line.startswith(".text."):
            inside = f".text.{entry}" in line
            chain = []
        elif inside and (place := _line.match(line)):
            chain = [*([] if fresh else chain), (place[1], int(place[2]))]
            fresh = False
        elif inside and (instruction := _instruction.match(line)):
            fresh = True
            found.append(SassLine(None, None, instruction[2]))
            known = [place for place in chain if Path(place[0]).name == own] or chain
            if known:
                found[-1] = SassLine(Path(known[0][0]).name, known[0][1], instruction[2])
    return found
