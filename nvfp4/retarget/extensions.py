"""CUDA C++ extensions on a GPU that they may not be written for: torch calls `nvfp4.retarget.nvcc`.

Imports neither torch nor the emulator: most submissions have no extension, or one that compiles as
it is.
"""

import contextlib
import fcntl
import functools
import hashlib
import importlib
import inspect
import json
import os
import re
import shlex
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from nvfp4.capture import activity
from nvfp4.capture.cuda import image_headers
from nvfp4.capture.cuda.compilers import CANNOT_BE_COMPILED, CompileError, LoadError, for_people
from nvfp4.capture.cuda.source_lines import in_file, texts
from nvfp4.capture.frames import users_file
from nvfp4.capture.imports import when_imported
from nvfp4.records.base import Record
from nvfp4.records.launch_errors import RetargetError

REPORT = ".retargeted.json"
"""Suffix of the file beside an object file that lists the rewritten instructions."""

_COMPILER, _FOLDER = "PYTORCH_NVCC", "TORCH_EXTENSIONS_DIR"
"""Variables that torch reads when it builds."""
_INCLUDED = "CPLUS_INCLUDE_PATH"

_FAILED = "failed.json"
_FAILED_S = 3600.0
_OF_THE_SOURCE = re.compile(r"\berror\s*:", re.IGNORECASE)
_OF_THE_MACHINE = re.compile(
    r"no such file|no space|cannot (open|create|write|read|find|execute|allocate)|could not"
    r"|out of memory|killed|terminated|signal|internal|permission|read-only|unavailable",
    re.IGNORECASE,
)
"""Errors of this machine, which may not recur in the next build of the same source."""
_MISSING_HEADER = re.compile(r"error: [^:\n]+: No such file or directory|compilation terminated")
"""The error of a missing header, which recurs as long as compilers look into the same folders."""

_REFUSED = re.compile(r"error: (\S+ cannot run on sm_\w+: .*)", re.DOTALL)
"""The words of `nvfp4.retarget.nvcc` about an instruction that has no replacement."""

_FAILED_STEP = re.compile(r"^FAILED: (?:\[code=\d+\] )?(\S+?)(?:\.o)? *$", re.MULTILINE)
_NEXT_STEP = re.compile(r"^(?:FAILED: |\[\d+/\d+\] |ninja: )", re.MULTILINE)
_OLDEST = 80


class NotRewritten(RetargetError, RuntimeError):
    """A build with an instruction that this GPU lacks; a RuntimeError as torch's."""

    verdict_code = "retarget.no_replacement"


def start(retarget: str, arch: str, capability: Callable[[], tuple[int, int]]) -> None:
    """Make torch build extensions for this GPU from now on; unless retarget is "never", through PTX
    of `arch` where needed.

    retarget: "auto" (where they cannot be built as they are) or "never". capability: returns that
    of the GPU, called when torch is about to build. A compiler chosen by PYTORCH_NVCC is kept.
    Each compiler and each GPU has its own folder of builds.
    """
    when_imported("torch.utils.cpp_extension", lambda: _prepare(retarget, arch, capability()))


def _prepare(retarget: str, arch: str, capability: tuple[int, int]) -> None:
    import torch
    import torch.utils.cpp_extension as builder

    number = 10 * capability[0] + capability[1]
    own = retarget == "auto" and arch.strip("sm_af") == str(number)
    offered = retarget != "never" and number >= _OLDEST
    if offered and _COMPILER not in os.environ and builder.CUDA_HOME is not None:
        program = Path(__file__).with_name("nvcc.py")
        nvcc = Path(builder.CUDA_HOME, "bin", "nvcc")
        how = "never" if own else retarget
        words = (sys.executable, program, how, arch, number, _rules(), nvcc)
        os.environ[_COMPILER] = shlex.join(map(str, words))
    toolkit = os.path.realpath(builder.CUDA_HOME or "")
    made_by = (os.environ.get(_COMPILER, ""), toolkit, torch.__version__, sys.version)
    digest = hashlib.sha256("\n".join(made_by).encode()).hexdigest()[:16]
    root = os.environ.get(_FOLDER) or builder.get_default_build_root()
    os.environ[_FOLDER] = str(Path(root, f"sm_{number}-{digest}"))
    builder.FileBaton = Turn
    builder._write_ninja_file_and_build_library = _explained(builder)
    builder._import_module_from_library = _noted(builder._import_module_from_library)
    builder.load_inline = _with_places(builder.load_inline)
    # As on the contest's machines, where compilers look into CUTLASS's folder.
    folders = [os.environ.get(_INCLUDED, ""), *map(str, image_headers.cutlass_folders())]
    os.environ[_INCLUDED] = os.pathsep.join(filter(None, folders))


def _with_places(original: Callable[..., Any]) -> Callable[..., Any]:
    """Return torch's load_inline, with sources that say where they stand in the submission's
    file."""
    signature = inspect.signature(original)

    @functools.wraps(original)
    def load_inline(*arguments: Any, **named: Any) -> Any:
        given = signature.bind(*arguments, **named).arguments
        for name in {"cpp_sources", "cuda_sources"} & given.keys():
            given[name] = [in_file(each, users_file()) for each in texts(given[name])]
        if Path(given.get("build_directory") or os.sep).is_relative_to(tempfile.gettempdir()):
            del given["build_directory"]
        return original(**given)

    return load_inline


def _noted(original: Callable[..., Any]) -> Callable[..., Any]:
    """Return torch's function that loads a built library, with the same errors as without a GPU."""

    @functools.wraps(original)
    def load(name: str, folder: str, *arguments: Any, **named: Any) -> Any:
        try:
            library = original(name, folder, *arguments, **named)
        except (ImportError, OSError) as error:
            raise LoadError(name, error) from error
        for each in sorted(Path(folder).glob(f"*{REPORT}")):
            listed = json.loads(each.read_text(encoding="utf-8"))
            rewritten_kernels.extend([new for new in listed if new not in rewritten_kernels])
        return library

    return load


def _in_the_compiler_s_words(said: str, named: Mapping[str, Any]) -> str:
    """Reduce the output of a failed ninja build to the compiler's errors, shown as without a GPU.
    named: see `Failure.of`."""
    step = _FAILED_STEP.search(said)
    if step is None:
        return said
    _, _, errors = said[step.end() :].lstrip("\n").partition("\n")  # behind the command
    errors = _NEXT_STEP.split(errors, maxsplit=1)[0]
    names = {Path(each).stem: Path(each).name for each in named.get("sources", ())}
    what = names.get(step[1].removesuffix(".cuda"), step[1])
    folder = Path(named.get("build_directory") or os.devnull)
    return f"{what}{CANNOT_BE_COMPILED}{for_people(errors, folder)}"


def _explained(builder: Any) -> Callable[..., Any]:
    """Return torch's function that builds, with shortened errors.

    Raises NotInstalled if a header of the contest's machines is missing, and NotRewritten. A failed
    build is repeated on request, unless the source alone is at fault: every process of a judgement
    requests it.
    """
    original = builder._write_ninja_file_and_build_library

    @functools.wraps(original)
    def build(*arguments: Any, **named: Any) -> Any:
        failure = Failure.of(named)
        try:
            try:
                failure.refuse_again()
                # Otherwise torch prints what the compilers say, and leaves it out of the error.
                return original(*arguments, **{**named, "verbose": False})
            except BaseException:
                # Make torch forget the build. Otherwise it takes what was requested once as built,
                # and another import in this process would load a missing file.
                builder.JIT_EXTENSION_VERSIONER.entries.clear()
                raise
        except RuntimeError as error:
            words = _in_the_compiler_s_words(str(error), named)
            failure.remember(words)
            image_headers.refuse_if_missing(words, Path(builder.CUDA_HOME or "", "include"))
            refused = _REFUSED.match(words.rpartition(CANNOT_BE_COMPILED)[2])
            if refused is not None:
                raise NotRewritten(refused[1]) from None
            raise CompileError(words) from None

    return build


class Failure(Record):
    """The last failed build in a folder."""

    file: Path
    asked: str
    """Identifies what was to be built."""

    @classmethod
    def of(cls, named: Mapping[str, Any]) -> "Failure":
        """Return the failure of a build. named: arguments of torch's function that builds."""
        asked = {name: each for name, each in named.items() if name != "verbose"}
        digest = hashlib.sha256(repr((os.environ.get(_INCLUDED), sorted(asked.items()))).encode())
        for source in named.get("sources", ()):
            with contextlib.suppress(OSError):  # which the build tells
                digest.update(Path(source).read_bytes())
        folder = named.get("build_directory")  # None with a torch that hands it over otherwise
        return cls(Path(folder, _FAILED) if folder else Path(os.devnull), digest.hexdigest())

    def refuse_again(self) -> None:
        """Raise RuntimeError if the same build failed not long ago."""
        with contextlib.suppress(OSError, ValueError):
            known = json.loads(self.file.read_text(encoding="utf-8"))
            age_s = time.time() - self.file.stat().st_mtime
            if known["asked"] == self.asked and 0 <= age_s <= _FAILED_S:
                raise RuntimeError(known["said"])

    def remember(self, said: str) -> None:
        """Remember the failure if the source alone is to blame."""
        errors = said.rpartition(CANNOT_BE_COMPILED)[2]
        others = _MISSING_HEADER.sub("", errors)
        if _OF_THE_SOURCE.search(errors) and not _OF_THE_MACHINE.search(others):
            with contextlib.suppress(OSError):
                text = json.dumps({"asked": self.asked, "said": said})
                self.file.write_text(text, encoding="utf-8")


class Turn:
    """A replacement for torch's FileBaton.

    A killed build leaves the FileBaton's file behind, so that all other processes wait forever; and
    a process that has waited loads the build of another one. Here Linux ends a turn with its
    process, and all processes build in turn: ninja does nothing if all targets are up to date.
    """

    def __init__(self, lock_file_path: str, *_: Any, **__: Any) -> None:
        self._path = f"{lock_file_path}-of-nvfp4"
        self._fd = -1

    def try_acquire(self) -> bool:
        """Wait for the turn; always succeeds."""
        self._fd = os.open(self._path, os.O_CREAT | os.O_RDWR)
        with contextlib.suppress(OSError):  # of a file system without locks
            fcntl.flock(self._fd, fcntl.LOCK_EX)
        return True

    def release(self) -> None:
        """End the turn."""
        os.close(self._fd)


def _rules() -> str:
    """Return a hash of the rewriting code; if it changes, everything is built again."""
    digest = hashlib.sha256(Path(__file__).with_name("nvcc.py").read_bytes())
    for package in ("nvfp4.retarget", "nvfp4.capture.cuda", "nvfp4.emulator.ptx"):
        spec = find_spec(package)
        assert spec is not None
        for folder in spec.submodule_search_locations or ():
            for path in sorted(Path(folder).glob("*.py")):
                digest.update(path.read_bytes())
    return digest.hexdigest()[:12]


rewritten_kernels: list[dict[str, Any]] = []
"""An entry for each rewritten kernel of the libraries that this process has loaded; see
`retarget.rewrite.Rewritten.entries`."""

_COMPILING = {
    "torch.utils.cpp_extension": ("torch.utils.cpp_extension", "", "_jit_compile"),
    "triton": ("triton.runtime.jit", "JITFunction", "_do_compile"),
    "cutlass": ("cutlass.base_dsl.dsl", "BaseDSL", "generate_mlir"),
}
"""The function of each package that compiles: its module, its class ("" for none), and its name."""


def watch_compilers(tell: Callable[[str], None]) -> None:
    """Call `tell` with "compiling", and then another word, when torch, Triton or CuTe DSL begin and
    end compiling on a GPU.

    That time is not charged to a submission.
    """
    activity.tell(tell)

    def watch(module: str, holder: str, function: str) -> None:
        owner: Any = importlib.import_module(module)
        owner = getattr(owner, holder) if holder else owner
        setattr(owner, function, activity.busy("compiling")(getattr(owner, function)))

    for package, place in _COMPILING.items():
        when_imported(package, functools.partial(watch, *place))
