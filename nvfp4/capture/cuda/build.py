"""From CUDA C++ to PTX and a shared object of host code that calls the runtime beside this file.

The PTX is what a GPU's driver would compile: nvcc makes no machine code. ptxas compiles it all the
same, for its errors and for the number of registers, which a launch depends on.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from enum import Enum, auto
from pathlib import Path
from typing import Any

from nvfp4.capture.activity import busy
from nvfp4.capture.cuda import flags, headers_of_torch, image_headers
from nvfp4.capture.cuda.compilers import (
    STATIC_SHARED_BYTES,
    CompileError,
    assemble,
    cache_folder,
    compiled_once,
    own_identity,
    remembered,
    run_compiler,
)
from nvfp4.capture.cuda.toolchain import Toolchain, find_toolchain, python_include
from nvfp4.capture.kernel import Resources

_HERE = Path(__file__).parent
SLIM_HEADERS = _HERE / "headers"
_CUDA_FUNCTION = re.compile(
    r"^(?:__cuda|cuda[A-Z]|cu[A-Z]|cublas|cusparse|cusolver|cudnn|curand|cufft|nvrtc)\w*$"
)


@dataclass(frozen=True)
class Source:
    """A file to compile: text to be written under a name, or a file that exists.

    text: with #line directives, where it comes from a Python file.
    """

    name: str
    text: str
    path: Path | None = None

    @property
    def is_cuda(self) -> bool:
        """Whether nvcc compiles it."""
        return self.name.endswith((".cu", ".cuh"))


@dataclass(frozen=True)
class Request:
    """An extension to build. name: of the module. arch: sm_100a or the like. made_for: what the
    submission has code made for, see `flags.made_for`; PTX of `arch` is made all the same.
    """

    name: str
    sources: tuple[Source, ...]
    arch: str
    cflags: tuple[str, ...] = ()
    cuda_cflags: tuple[str, ...] = ()
    ldflags: tuple[str, ...] = ()
    include_paths: tuple[str, ...] = ()
    made_for: tuple[str, ...] = ()


@dataclass(frozen=True)
class Built:
    """library: the shared object. ptx: texts of its modules, in the order in which they register
    themselves. resources: of each kernel of each.

    headers: "slim", or "torch" where those did not suffice. made_for: as of the request.
    """

    library: Path
    ptx: tuple[str, ...]
    resources: tuple[dict[str, Resources], ...] = ()
    headers: str = "slim"
    made_for: tuple[str, ...] = ()


def build(request: Request) -> Built:
    """Compile, or find what was compiled before. Raises MissingToolchain and CompileError."""
    tools = find_toolchain()
    key = _key(request, tools)
    folder, known = remembered(key, lambda folder: _build(request, tools, folder))
    texts = tuple((folder / name).read_text(encoding="utf-8") for name in known["ptx"])
    used = tuple(
        {name: Resources(**each) for name, each in kernels.items()}
        for kernels in known["resources"]
    )
    return Built(folder / known["library"], texts, used, known["headers"], request.made_for)


def _key(request: Request, tools: Toolchain) -> str:
    digest = hashlib.sha256()
    described: dict[str, Any] = asdict(request)
    for source in described["sources"]:
        source["path"] = None  # what it says matters, not where it lies
    digest.update(json.dumps(described, sort_keys=True, default=str).encode())
    digest.update(own_identity(tools) + image_headers.identity().encode())
    folders = {source.path.parent for source in request.sources if source.path}
    for path in (each for folder in sorted(folders) for each in sorted(folder.glob("*"))):
        if path.is_file() and path.stat().st_size < 1 << 20:
            digest.update(path.name.encode() + path.read_bytes())
    for folder in request.include_paths:
        for path in sorted(Path(folder).rglob("*")):
            stat = path.stat()
            digest.update(f"{path} {stat.st_size} {stat.st_mtime_ns}".encode())
    return digest.hexdigest()[:32]


@busy("compiling")
def _build(request: Request, tools: Toolchain, folder: Path) -> dict[str, Any]:
    """What the cache remembers of a build; the outcome of a failed one is remembered too, unless
    it is due to this machine. Raises NotInstalled.
    """
    texts = [each.text for each in request.sources]
    said = ""
    for headers in Headers:
        if headers is Headers.SLIM_WITH_EVERYTHING and not headers_of_torch.misses_a_name(said):
            continue
        if headers is Headers.TORCH and not headers_of_torch.torch_may_know(said, texts):
            continue
        try:
            return _Compilation(request, tools, folder, headers).run()
        except CompileError as error:
            said = error.message
    image_headers.refuse_if_missing(said, tools.include)
    return {"error": said}


class Headers(Enum):
    """What stands for torch's headers, in the order in which they are tried: ours, ours with all
    that torch's include of other libraries, and torch's own.
    """

    SLIM = auto()
    SLIM_WITH_EVERYTHING = auto()
    TORCH = auto()


class _Compilation:
    """One attempt, with one set of headers."""

    def __init__(self, request: Request, tools: Toolchain, folder: Path, headers: Headers) -> None:
        self.request = request
        self.tools = tools
        self.folder = folder
        self.headers = headers
        self.slim = headers is not Headers.TORCH
        self.work = Path(tempfile.mkdtemp(prefix="compile-", dir=folder))

    def run(self) -> dict[str, Any]:
        """Compile the sources side by side and link them."""
        try:
            with ThreadPoolExecutor(max_workers=4) as pool:
                own = [pool.submit(self._own_object, name) for name in self._own_sources()]
                compiled = [pool.submit(self._compile, *each) for each in self._written()]
                ptx = [path for each in compiled if (path := _ptx_of(each.result())).is_file()]
                resources = [pool.submit(self._resources, path) for path in ptx]
                objects = [each.result() for each in compiled + own]
                library = self._link(objects)
                used = [each.result() for each in resources]
            for path in ptx:
                os.replace(path, self.folder / path.name)
            os.replace(library, self.folder / library.name)
        finally:
            shutil.rmtree(self.work, ignore_errors=True)
        return {
            "library": library.name,
            "ptx": [path.name for path in ptx],
            "resources": used,
            "headers": "slim" if self.slim else "torch",
        }

    def _own_sources(self) -> list[str]:
        return ["runtime.cpp", "slim_torch.cpp" if self.slim else "torch_cuda.cpp"]

    def _written(self) -> list[tuple[int, Source, Path]]:
        """Each source with its number and the file that has its text."""
        files = []
        for number, source in enumerate(self.request.sources):
            path = source.path
            if path is None:
                path = self.work / source.name
                path.write_text(source.text, encoding="utf-8")
            files.append((number, source, path))
        return files

    # Steps

    def _compile(self, number: int, source: Source, path: Path) -> Path:
        target = self.work / f"{number}_{path.name}.o"  # there may be two of a name
        defines = [
            f"-DTORCH_EXTENSION_NAME={self.request.name}",
            "-DTORCH_API_INCLUDE_EXTENSION_H",
        ]
        if self.headers is Headers.SLIM_WITH_EVERYTHING:
            defines.append("-DSLIM_TORCH_EVERYTHING")
        common = [*defines, *self._includes(), "-c", str(path), "-o", str(target)]
        if source.is_cuda:
            virtual = self.request.arch.replace("sm_", "compute_")
            # nvcc names what it keeps after the source.
            kept = Path(tempfile.mkdtemp(dir=self.work))
            command = [
                *(str(self.tools.nvcc), "-ccbin", self.tools.host_compiler),
                *(f"-gencode=arch={virtual},code={virtual}", "-lineinfo"),
                *("-Xcompiler", ",".join(self._host_flags())),
                *("--keep", "--keep-dir", str(kept)),
                *_with_standard(flags.kept(self.request.cuda_cflags), self.slim),
                *common,
            ]
            self._run(command, path.name)
            (text,) = kept.glob("*.ptx")
            os.replace(text, _ptx_of(target))
            return target
        own_flags = _with_standard(flags.kept(self.request.cflags), self.slim)
        host = [self.tools.host_compiler, *self._host_flags()]
        self._run([*host, *own_flags, *common], path.name)
        return target

    def _host_flags(self) -> list[str]:
        # The slim headers use torch's names; nobody else may find what they define.
        return ["-fPIC", "-fvisibility=hidden"] if self.slim else ["-fPIC"]

    def _includes(self) -> list[str]:
        return [f"-I{folder}" for folder in self.request.include_paths] + self._system_includes()

    def _system_includes(self) -> list[str]:
        torch = [SLIM_HEADERS] if self.slim else headers_of_torch.include_paths()
        folders = [*torch, self.tools.include, Path(python_include())]
        if self.headers is not Headers.SLIM:
            folders.append(headers_of_torch.LIBRARY_HEADERS)  # what the toolkit has comes first
        folders += image_headers.cutlass_folders()
        return [word for folder in folders for word in ("-isystem", str(folder))]

    def _own_object(self, name: str) -> Path:
        """An object of a file beside this one; compiled once."""
        standard = "-std=c++17" if self.slim else "-std=c++20"
        command = [self.tools.host_compiler, standard, "-O1", "-c"]
        command += [*self._host_flags(), *self._system_includes(), str(_HERE / name)]
        headers = "slim" if self.slim else "torch"
        return compiled_once(self.tools, headers, f"{Path(name).stem}.o", command)

    def _resources(self, ptx: Path) -> dict[str, dict[str, int]]:
        limits = flags.register_limit(self.request.cuda_cflags)
        used = assemble(self.tools, ptx, self.request.arch, limits)
        self._refuse_static_shared(used)
        return {kernel: asdict(each) for kernel, each in used.items()}

    def _refuse_static_shared(self, used: Mapping[str, Resources]) -> None:
        """Raises CompileError for what ptxas would refuse for the architectures that the submission
        asks for. What depends on the architecture in the source is not known here."""
        if any("__CUDA_ARCH" in source.text for source in self.request.sources):
            return
        codes = [code for code in self.request.made_for if re.fullmatch(r"sm_\d+f?", code)]
        for kernel, each in used.items():
            if codes and each.shared_bytes > STATIC_SHARED_BYTES:
                arch = self.request.arch
                raise CompileError(
                    f"ptxas: {kernel} uses too much shared data ({each.shared_bytes} bytes, "
                    f"{STATIC_SHARED_BYTES} max for {codes[0]}); {arch} takes more: "
                    f"-gencode=arch={arch.replace('sm_', 'compute_')},code={arch}"
                )

    def _link(self, objects: list[Path]) -> Path:
        library = self.work / f"{self.request.name}.so"
        # The functions of the runtime are this library's own, whatever else is loaded.
        command = [self.tools.host_compiler, "-shared", "-Wl,-Bsymbolic", "-o", str(library)]
        command += [str(each) for each in objects]
        if not self.slim:
            command += headers_of_torch.link_flags()
        command += flags.linked(self.request.ldflags)
        self._run(command, library.name)
        missing = self._missing_functions(library)
        if missing:
            stubs = self.work / "stubs.cpp"
            bodies = "".join(
                f'int {name}() {{ return nvfp4_unsupported("{name}"); }}\n' for name in missing
            )
            stubs.write_text(f'extern "C" {{\nint nvfp4_unsupported(const char *);\n{bodies}}}\n')
            self._run([*command, "-fPIC", str(stubs)], library.name)
        return library

    def _missing_functions(self, library: Path) -> list[str]:
        listed = subprocess.run(
            ["nm", "-D", "--undefined-only", str(library)], capture_output=True, text=True
        )
        names = [line.split()[-1] for line in listed.stdout.splitlines() if line.split()]
        return sorted(name for name in names if _CUDA_FUNCTION.match(name))

    def _run(self, command: Sequence[str], what: str) -> str:
        return run_compiler(self.tools, command, self.work, what)


def _ptx_of(compiled: Path) -> Path:
    """The PTX that belongs to an object; there is none of C++."""
    return compiled.with_suffix(".ptx")


def _with_standard(given: list[str], slim: bool) -> list[str]:
    """The language that the submission asks for; torch's own headers need C++20."""
    chosen = [word for word in given if word.startswith(("-std", "--std"))]
    if slim and chosen:
        return given
    others = [word for word in given if word not in chosen]
    return ["-std=c++17" if slim else "-std=c++20", *others]


def build_shared_objects() -> None:
    """Compile what every extension with the slim headers is linked to. Raises MissingToolchain and
    CompileError.
    """
    folder = cache_folder()
    folder.mkdir(parents=True, exist_ok=True)
    shared = _Compilation(Request("shared", (), ""), find_toolchain(), folder, Headers.SLIM)
    try:
        with ThreadPoolExecutor() as pool:
            list(pool.map(shared._own_object, shared._own_sources()))
    finally:
        shutil.rmtree(shared.work, ignore_errors=True)


if __name__ == "__main__":
    build_shared_objects()
