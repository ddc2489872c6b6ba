"""Running nvcc, the host compiler and ptxas: their errors, and where their output is kept."""

import errno
import fcntl
import functools
import hashlib
import json
import os
import re
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from nvfp4.capture.cuda import headers_of_torch
from nvfp4.capture.cuda.architectures import Capability, Image, advice
from nvfp4.capture.cuda.source_lines import SHOWN_AS
from nvfp4.capture.cuda.toolchain import Toolchain
from nvfp4.capture.kernel import Resources
from nvfp4.records.launch_errors import CaptureError, UnsupportedCall
from nvfp4.records.processes import caches_home
from nvfp4.records.source import SourceLines

_HERE = Path(__file__).parent
_LONGEST_ERROR_LINES = 24
_FIRST_ERROR = re.compile(r"error|\bld: ", re.IGNORECASE)
_FOLDERS = re.compile(r"/\S*/")
_NO_LIBRARY = re.compile(r"cannot find -l([\w.+-]+)")
_ENTRY = re.compile(r"Compiling entry function '([^']+)'")
_USED = re.compile(r"Used (\d+) registers")
_SHARED = re.compile(r"(\d+) bytes smem")
_FRAME = re.compile(r"(\d+) bytes stack frame")
TARGET = re.compile(r"^[ \t]*\.target[ \t]+sm_(\w+)", re.MULTILINE)
_AT_LINE = re.compile(r"ptxas (\S+), line (\d+); (\w+)\s*: ")
CANNOT_BE_COMPILED = " cannot be compiled:\n"


_HINTS = {
    r"No such file": "a submission is one file: put the text of your own headers into its source",
    r"is undefined|not declared": "declare it above this line, or include the header that does",
    r"static assertion": "the line of the instantiation has the values that it refuses",
    r"gpu architecture": "nvcc --list-gpu-code names those that nvcc knows; a B200 is sm_100a",
    r"undefined (symbol|ref)|cannot find -l": "define it, or name its library in extra_ldflags",
    r"ptxas": "the PTX manual has an instruction's types and the architectures that have it",
    r"\bexpected\b": "look for what is missing at the end of the line before, too",
}
"""Hints by a pattern of the compiler's message; the first match counts."""


class CompileError(CaptureError, RuntimeError):
    """A compiler's errors, in the submission's own lines; a RuntimeError as torch's."""

    verdict_code = "build.compiler"

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        matching = (text for pattern, text in _HINTS.items() if re.search(pattern, message))
        super().__init__(message, hint=hint or next(matching, None))


class LoadError(CompileError, ImportError):
    """A library that was built but cannot be loaded; an ImportError, as Python would raise."""

    def __init__(self, name: str, error: Exception) -> None:
        super().__init__(f"the extension {name} cannot be loaded: {_FOLDERS.sub('', str(error))}")


def cache_folder() -> Path:
    """Return this user's folder of builds."""
    return caches_home() / "nvfp4-cuda"


@functools.cache
def own_identity(tools: Toolchain) -> bytes:
    """Return a digest of the compilers, of torch and of the code in this folder."""
    digest = hashlib.sha256(tools.identity.encode() + headers_of_torch.identity().encode())
    for path in sorted(_HERE.rglob("*")):
        if path.suffix in (".py", ".cpp", ".h", ".inl", ".def", ".cuh"):
            digest.update(path.name.encode() + path.read_bytes())
    return digest.digest()


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Lock a folder: one process builds, the others wait and use its result."""
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / "lock", "a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def remembered(key: str, make: Callable[[Path], dict[str, Any]]) -> tuple[Path, dict[str, Any]]:
    """Return a folder of the cache, and the description of its contents that `make` returned now or
    earlier; its "read" has the digests of the files that it depends on.

    Raises CompileError if the description has an "error", which is cached with its "hint".
    """
    folder = cache_folder() / key
    record = folder / "made.json"
    with locked(folder):
        known = json.loads(record.read_text(encoding="utf-8")) if record.is_file() else None
        if known is None or any(digest(Path(p)) != then for p, then in known["read"].items()):
            # What was made before may be loaded.
            made = tempfile.mkdtemp(dir=folder)
            known = {**make(Path(made)), "folder": Path(made).name}
            record.write_text(json.dumps(known), encoding="utf-8")
    if "error" in known:
        raise CompileError(known["error"], hint=known.get("hint"))
    return folder / known["folder"], known


def digest(path: Path) -> str:
    """Return a digest of a file; "" if it cannot be read."""
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError:
        return ""


def compiled_once(tools: Toolchain, identity: str, name: str, command: Sequence[str]) -> Path:
    """Return the file `name` that a host compiler makes of the C++ beside this file, and keep it.

    identity: what the file depends on besides sources and compilers. command: the command without
    its output. Raises CompileError.
    """
    digest = hashlib.sha256(own_identity(tools) + f"{name} {identity}".encode()).hexdigest()
    folder = cache_folder() / f"own-{digest[:16]}"
    target = folder / name
    with locked(folder):
        if not target.is_file():
            part = target.with_suffix(".part")
            run_compiler(tools, [*command, "-o", str(part)], folder, name)
            os.replace(part, target)
    return target


def run_compiler(tools: Toolchain, command: Sequence[str], work: Path, what: str) -> str:
    """Run a compiler in the folder `work` and return its output. Raises CompileError about `what`,
    and UnsupportedCall for a library that is not installed."""
    ended = subprocess.run(
        command, capture_output=True, text=True, cwd=work, env=tools.environment, errors="replace"
    )
    said = ended.stderr + ended.stdout
    missing = _NO_LIBRARY.search(said) if ended.returncode else None
    if missing is not None:
        message = f"{what} is linked with lib{missing[1]}, which is not here"
        hint = "CUDA's libraries are not emulated; a GPU with the toolkit can judge it"
        raise UnsupportedCall(message, hint=hint)
    if ended.returncode and os.strerror(errno.ENOSPC) in said:
        raise OSError(errno.ENOSPC, f"{what}{CANNOT_BE_COMPILED}no space is left for it")
    if ended.returncode != 0:
        raise CompileError(f"{what}{CANNOT_BE_COMPILED}{for_people(said, work)}")
    return said


def for_people(said: str, work: Path) -> str:
    """Return errors with the participant's names and lines; notes and warnings only if there are no
    errors."""
    said = by_source(said, work).replace(SHOWN_AS, "").replace(f"{work}/", "")
    lines = [line for line in said.splitlines() if line.strip() and "ptxas info" not in line]
    first = next((i for i, line in enumerate(lines) if _FIRST_ERROR.search(line)), 0)
    chosen = lines[first : first + _LONGEST_ERROR_LINES]
    if len(lines) - first > _LONGEST_ERROR_LINES:
        chosen.append("...")
    return "\n".join(chosen)


def assemble(
    tools: Toolchain, ptx: Path, arch: str, limits: Sequence[str] = ()
) -> dict[str, Resources]:
    """Return the resources of each kernel of a PTX file. Raises CompileError if ptxas refuses it.

    limits: ptxas' option -maxrregcount.
    """
    command = [str(tools.ptxas), f"-arch={arch}", "-v", *limits, str(ptx), "-o", os.devnull]
    _, *said = _ENTRY.split(run_compiler(tools, command, ptx.parent, ptx.name))
    patterns = {"registers": _USED, "shared_bytes": _SHARED, "local_bytes": _FRAME}
    resources = {}
    for kernel, text in zip(said[::2], said[1::2], strict=True):
        found = {name: pattern.search(text) for name, pattern in patterns.items()}
        resources[kernel] = Resources(**{name: int(n[1]) for name, n in found.items() if n})
    return resources


def by_source(said: str, work: Path) -> str:
    """Errors of ptxas with lines of the source instead of the PTX, equal ones once. work: where the
    PTX lies."""

    @functools.cache
    def sources(path: str) -> SourceLines:
        there = Path(work, path)
        return SourceLines(there.read_text(errors="replace") if there.is_file() else "")

    def place(error: re.Match[str]) -> str:
        path, number, kind = error.groups()
        source = sources(path).at(int(number))
        users = source.users() if source else None
        return f"{users.file}:{users.line}: {kind}: " if users else error[0]

    return "\n".join(dict.fromkeys(_AT_LINE.sub(place, line) for line in said.splitlines()))


def what_helps(
    tools: Toolchain, errors: str, ptx: Path, virtual: str, capability: Capability
) -> str | None:
    """Return `advice` about errors of ptxas, if ptxas takes the PTX for the GPU's own
    architecture."""
    found = advice(errors, virtual, capability)
    if found is None or not ptx.is_file():
        return None
    arch = Image(virtual, virtual).assembled(capability)
    with tempfile.TemporaryDirectory(dir=ptx.parent) as folder:
        other = Path(folder, ptx.name)
        other.write_text(TARGET.sub(f".target {arch}", ptx.read_text(encoding="utf-8"), count=1))
        try:
            assemble(tools, other, arch)
        except CompileError:
            return None
    return found
