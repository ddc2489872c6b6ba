"""From CUDA C++ to PTX and a shared object of host code that calls the runtime beside this file.

The PTX is what a GPU's driver would compile: nvcc makes no machine code. ptxas compiles it all the
same, for its errors and for the number of registers, which a launch depends on.
"""

import contextlib
import hashlib
import json
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path
from typing import Any

from nvfp4.capture.activity import busy
from nvfp4.capture.cuda import compilers, flags, headers_of_torch, image_headers
from nvfp4.capture.cuda.architectures import Capability, Image
from nvfp4.capture.cuda.toolchain import Toolchain, find_toolchain, python_include
from nvfp4.capture.kernel import Resources
from nvfp4.records.base import Record

_HERE = Path(__file__).parent
_OF_DRIVER = re.compile(r"(?<= )cu[A-Z]\w*$", re.MULTILINE)
_CUDA_FUNCTION = re.compile(
    r"(?<= )(?:__cuda|cuda[A-Z]|cu[A-Z]|cublas|cusparse|cusolver|cudnn|curand|cufft|nvrtc)\w*$",
    re.MULTILINE,
)

# Headers of the submission's own, which nothing here reads, and of large libraries.
_OTHERS = r'include\s*(?:"|<(?!torch/|ATen/|c10/|pybind11/)[^>]*/)'
_ALWAYS = r"(?:to_)?string|vector|array|tuple|optional|get|move|min|max|runtime_error|u?int\w*_t"
_LEFT_OUT_UNLESS = {
    "-DSLIM_WITHOUT_FLOATS": re.compile(rf"{_OTHERS}|(?i:half|float16|bf16|fp\d|nv_)"),
    "-DSLIM_WITHOUT_STD": re.compile(
        rf"{_OTHERS}|CHECK|DISPATCH|\bstr\b|\bbegin\b|\bstd\b(?!\s*::\s*(?:{_ALWAYS})\b)"
    ),
}
"""Options that leave out half of what the slim headers include, by patterns that match a source
that may need it."""

_CONVERTS = re.compile(r'^\s*\.file\s+\d+\s+"[^"]*/cuda_fp[468]\.hpp"', re.MULTILINE)
"""Matches PTX with code from headers that convert in software what a GPU has no instruction for."""

_READ = {
    ".ii": re.compile(r'^# \d+ "(.+)" 1(?: \d)*$', re.MULTILINE),
    ".d": re.compile(r"(?<=\s)(?:\\.|[^\s\\])+(?=\s)"),
}
"""Patterns of the headers that a compiler has read: in what nvcc's preprocessor wrote, which is the
only one to know those of device code, and in a list of dependencies."""


class Source(Record):
    """A file to compile: text to be written under a name, or a file that exists."""

    name: str
    text: str
    """The text, with #line directives if it comes from a Python file."""
    path: Path | None = None

    @property
    def is_cuda(self) -> bool:
        """Whether the file is compiled by nvcc."""
        return self.name.endswith((".cu", ".cuh"))


class Request(Record):
    """An extension to build."""

    name: str
    """The name of its module."""
    sources: tuple[Source, ...]
    images: tuple[Image, ...]
    """The images that nvcc makes of each source. PTX of the first is emulated; the others are only
    compiled to find errors."""
    capability: Capability
    """Compute capability of the device."""
    cflags: tuple[str, ...] = ()
    cuda_cflags: tuple[str, ...] = ()
    ldflags: tuple[str, ...] = ()
    include_paths: tuple[str, ...] = ()


class Built(Record):
    """A compiled extension."""

    library: Path
    """Path of the shared object."""
    ptx: tuple[str, ...]
    """PTX of each module, in the order in which the modules register themselves."""
    resources: tuple[dict[str, Resources], ...] = ()
    """For each module, the resources of each kernel."""
    headers: str = "slim"
    """"slim", or "torch" if the slim headers did not suffice."""
    made_for: tuple[str, ...] = ()
    """The architectures of the images."""
    with_suffix: tuple[str, ...] = ()
    """For each text in `ptx`, the variant that `Launch.with_suffix` describes; "" for none."""


def build(request: Request) -> Built:
    """Compile, or find what was compiled before. Raises MissingToolchain and CompileError."""
    tools = find_toolchain()
    key = _key(request, tools)
    with busy("compiling"):  # another process may build the same, and is waited for
        folder, known = compilers.remembered(key, lambda folder: _build(request, tools, folder))
    texts, with_suffix = (
        tuple((folder / name).read_text(encoding="utf-8") if name else "" for name in known[kind])
        for kind in ("ptx", "with_suffix")
    )
    used = tuple(
        {name: Resources(**each) for name, each in kernels.items()}
        for kernels in known["resources"]
    )
    made_for = tuple(image.made for image in request.images)
    return Built(folder / known["library"], texts, used, known["headers"], made_for, with_suffix)


def _key(request: Request, tools: Toolchain) -> str:
    digest = hashlib.sha256()
    described: dict[str, Any] = asdict(request)
    for source in described["sources"]:
        source["path"] = None  # what it says matters, not where it lies
    digest.update(json.dumps(described, sort_keys=True, default=str).encode())
    digest.update(compilers.own_identity(tools) + image_headers.identity().encode())
    for path in _beside(request):
        digest.update(path.name.encode() + path.read_bytes())
    others = [path for folder in request.include_paths for path in Path(folder).rglob("*")]
    for word in flags.single_words(request.ldflags):
        others += [Path(word), *Path(word.removeprefix("-L")).glob("lib*")]
    for path in sorted(filter(os.path.exists, others)):
        stat = path.stat()
        digest.update(f"{path} {stat.st_size} {stat.st_mtime_ns}".encode())
    return digest.hexdigest()[:32]


def _beside(request: Request) -> list[Path]:
    """Return the files that lie beside the sources, but for large ones."""
    folders = sorted({source.path.parent for source in request.sources if source.path})
    files = (each for folder in folders for each in sorted(folder.glob("*")) if each.is_file())
    return [each for each in files if each.stat().st_size < 1 << 20]


def _build(request: Request, tools: Toolchain, folder: Path) -> dict[str, Any]:
    """Build and return the cache entry; a failed build has one too, unless it is due to this
    machine. Raises NotInstalled.
    """
    if deferring := flags.device_linking(flags.single_words(request.cuda_cflags)):
        why = f"with {deferring} the module has undefined symbols: torch links no device code"
        raise compilers.CompileError(why, hint="leave it out")
    texts = [each.text for each in request.sources]
    said, hint = "", None
    for slim in (True, False):
        if slim and any(map(headers_of_torch.binds_as_ours_cannot, texts)):
            continue
        if not slim and said and not headers_of_torch.torch_may_know(said, texts):
            continue
        attempt = _Compilation(request, tools, folder, slim)
        try:
            return attempt.run()
        except compilers.CompileError as error:
            said, hint = error.message, error.hint
    image_headers.refuse_if_missing(said, tools.include)
    if not attempt.is_preprocessed:
        raise compilers.CompileError(said, hint=hint)  # the header that is missing may come
    return {"error": said, "hint": hint, "read": attempt.read}


class _Compilation:
    """One attempt, with the headers in slim_torch/ or with torch's own."""

    def __init__(self, request: Request, tools: Toolchain, folder: Path, slim: bool) -> None:
        self.request = request
        self.tools = tools
        self.folder = folder
        self.slim = slim
        self.work = Path(tempfile.mkdtemp(prefix="compile-", dir=folder))
        self.read: dict[str, str] = {}
        """Digests of the headers that were read, but for those of the toolchain, by their paths."""
        self.is_preprocessed = True
        own = self.work / "headers"
        self.torch = slim_headers(own) if self.slim else headers_of_torch.include_paths()

    def run(self) -> dict[str, Any]:
        """Compile the sources side by side and link them."""
        try:
            with ThreadPoolExecutor(max_workers=4) as pool:
                own = [pool.submit(self._own_object, name) for name in self._own_sources()]
                compiled = [pool.submit(self._compile, *each) for each in self._written()]
                ptx = [path for each in compiled if (path := _ptx_of(each.result())).is_file()]
                resources = [pool.submit(self._resources, path) for path in ptx]
                checks = [pool.submit(self._assemble_others, path) for path in ptx]
                self._refuse_undefined([each.result() for each in compiled])
                library = self._link([each.result() for each in compiled + own])
                used = [each.result() for each in resources]
                for check in checks:
                    check.result()
            others = [_ptx_of(path, self._suffixed) for path in ptx]
            with_suffix = [path.name if path.is_file() else "" for path in others]
            asked = flags.of_ptxas(self.request.cuda_cflags)
            for path in (*ptx, *filter(Path.is_file, others)):
                if asked:
                    with path.open("a", encoding="utf-8") as file:
                        file.write(asked)
                os.replace(path, self.folder / path.name)
            os.replace(library, self.folder / library.name)
        finally:
            self._note_read()
            shutil.rmtree(self.work, ignore_errors=True)
        return {
            "library": library.name,
            "ptx": [path.name for path in ptx],
            "with_suffix": with_suffix,
            "resources": used,
            "headers": "slim" if self.slim else "torch",
            "read": self.read,
        }

    def _own_sources(self) -> list[str]:
        return ["runtime.cpp", "slim_torch/slim_torch.cpp" if self.slim else "torch_cuda.cpp"]

    def _written(self) -> Iterator[tuple[int, Source, Path]]:
        """Write the text of each source to a file; yields its number, the source and the file."""
        for number, source in enumerate(self.request.sources):
            path = source.path or self.work / source.name
            if source.path is None:
                path.write_text(source.text, encoding="utf-8")
            yield number, source, path

    @property
    def _suffixed(self) -> str:
        """The device's own architecture, with its suffix."""
        return "compute_{}{}a".format(*self.request.capability)

    # Steps

    def _compile(self, number: int, source: Source, path: Path) -> Path:
        """Compile with the headers that a source seems to need; with all if a name is missing."""
        unless = _LEFT_OUT_UNLESS.items() if self.slim else ()
        leave_out = [option for option, needed in unless if not needed.search(source.text)]
        try:
            return self._compile_with(leave_out, number, source, path)
        except compilers.CompileError as error:
            if not (leave_out and headers_of_torch.MISSING_NAME.search(error.message)):
                raise
        return self._compile_with([], number, source, path)

    def _compile_with(self, options: list[str], number: int, source: Source, path: Path) -> Path:
        target = self.work / f"{number}_{path.name}.o"  # there may be two of a name
        kept = Path(tempfile.mkdtemp(prefix="kept-", dir=self.work))
        defines = [f"-DTORCH_EXTENSION_NAME={self.request.name}", "-DTORCH_API_INCLUDE_EXTENSION_H"]
        folders = [f"-I{folder}" for folder in self.request.include_paths]
        common = [*options, *defines, *folders, *self._system_includes(), str(path)]
        compiled = ["-c", "-o", str(target)]
        if source.is_cuda:
            virtual = list(dict.fromkeys(image.virtual for image in self.request.images))
            nvcc = [str(self.tools.nvcc), "-ccbin", self.tools.host_compiler, "-lineinfo"]
            given = [*_with_standard(flags.kept(self.request.cuda_cflags), self.slim), *common]
            command = [
                *(*nvcc, *(f"-gencode=arch={each},code={each}" for each in virtual)),
                *("-Xcompiler", ",".join(self._host_flags()), "--keep", "--keep-dir", str(kept)),
                *(*given, *compiled),
            ]
            try:
                self._run(command, path.name)
            except compilers.CompileError as error:
                raise self._explained(error, next(kept.glob("*.ptx"), kept)) from None
            for each in virtual:
                (text,) = kept.glob(f"*.{each}.ptx" if len(virtual) > 1 else "*.ptx")
                os.replace(text, _ptx_of(target, "" if each == virtual[0] else each))
            if virtual[0][-1].isdigit() and _CONVERTS.search(_ptx_of(target).read_text()):
                own = self._suffixed
                other = [*nvcc, f"-gencode=arch={own},code={own}", *given, "-ptx"]
                with contextlib.suppress(compilers.CompileError):
                    self._run([*other, "-o", str(_ptx_of(target, own))], path.name)
            return target
        own_flags = _with_standard(flags.kept(self.request.cflags), self.slim)
        host = [self.tools.host_compiler, *self._host_flags()]
        noted = ["-MD", "-MF", str(kept / "read.d")]
        self._run([*host, *own_flags, *common, *noted, *compiled], path.name)
        return target

    def _note_read(self) -> None:
        own = *self._system_includes()[1::2], str(self.work), "/usr/include", "/usr/lib"
        known = tuple(f"{os.path.realpath(each)}/" for each in own)
        beside = _beside(self.request)  # in the key, wherever they lie
        for kept in self.work.glob("kept-*"):
            notes = [path for path in kept.iterdir() if path.suffix in _READ]
            # nvcc's preprocessor runs for the host, too.
            self.is_preprocessed &= len(notes) > 1 or (kept / "read.d").is_file()
            for note in notes:
                text = note.read_text(encoding="utf-8", errors="surrogateescape")
                for name in set(_READ[note.suffix].findall(text)):
                    path = Path(self.work, re.sub(r"\\(.)", r"\1", name))
                    if path not in beside and not os.path.realpath(path).startswith(known):
                        self.read[str(path)] = compilers.digest(path)

    def _host_flags(self) -> list[str]:
        # The slim headers use torch's names; their definitions stay hidden in this library.
        return ["-fPIC", "-fvisibility=hidden"] if self.slim else ["-fPIC"]

    def _system_includes(self) -> list[str]:
        folders = [*self.torch, self.tools.include, Path(python_include())]
        folders.append(headers_of_torch.LIBRARY_HEADERS)  # the toolkit's headers come first
        folders += image_headers.cutlass_folders()
        return [word for folder in folders for word in ("-isystem", str(folder))]

    def _own_object(self, name: str) -> Path:
        """Return the object of a file in this folder; compiled once."""
        standard = "-std=c++17" if self.slim else "-std=c++20"
        command = [self.tools.host_compiler, standard, "-O1", "-c"]
        command += [*self._host_flags(), *self._system_includes(), str(_HERE / name)]
        headers = "slim" if self.slim else "torch"
        return compilers.compiled_once(self.tools, headers, f"{Path(name).stem}.o", command)

    def _resources(self, ptx: Path) -> dict[str, dict[str, int]]:
        arch = self.request.images[0].assembled(self.request.capability)
        limits = flags.register_limit(self.request.cuda_cflags)
        try:
            used = compilers.assemble(self.tools, ptx, arch, limits)
        except compilers.CompileError as error:
            raise self._explained(error, ptx) from None
        return {kernel: asdict(each) for kernel, each in used.items()}

    def _explained(self, error: compilers.CompileError, ptx: Path) -> compilers.CompileError:
        """Return the error with a hint, if another architecture helps."""
        of = error.message, ptx, self.request.images[0].virtual, self.request.capability
        return compilers.CompileError(error.message, hint=compilers.what_helps(self.tools, *of))

    def _assemble_others(self, ptx: Path) -> None:
        """Assemble the images that the device would not load. Raises CompileError if one fails."""
        first, *others = self.request.images
        for image in others:
            if image.made.startswith("sm_"):
                own = "" if image.virtual == first.virtual else image.virtual
                compilers.assemble(self.tools, _ptx_of(ptx, own), image.made)

    def _refuse_undefined(self, objects: list[Path]) -> None:
        """Raise CompileError for the driver's functions without its library, as torch links none
        of it."""
        given = flags.single_words(self.request.ldflags)
        if not any(word == "-lcuda" or "libcuda.so" in word for word in given):
            command = ["nm", "--undefined-only", *map(str, objects)]
            listed = subprocess.run(command, capture_output=True, text=True)
            if found := _OF_DRIVER.search(listed.stdout):
                hint = 'add extra_ldflags=["-lcuda"], or ask cudaGetDriverEntryPoint for it'
                raise compilers.CompileError(f"undefined symbol: {found[0]}", hint=hint)

    def _link(self, objects: list[Path]) -> Path:
        library = self.work / f"{self.request.name}.so"
        # The functions of the runtime are this library's own, whatever else is loaded.
        command = [self.tools.host_compiler, "-shared", "-Wl,-Bsymbolic", "-o", str(library)]
        command += [str(each) for each in objects]
        if not self.slim:
            command += headers_of_torch.link_flags()
        command += flags.linked(self.request.ldflags)
        self._run(command, library.name)
        listed = subprocess.run(
            ["nm", "-D", "--undefined-only", str(library)], capture_output=True, text=True
        )
        missing = sorted(_CUDA_FUNCTION.findall(listed.stdout))
        if missing:
            stubs = self.work / "stubs.cpp"
            body = 'int {0}() {{ return nvfp4_unsupported("{0}"); }}\n'
            bodies = "".join(map(body.format, missing))
            stubs.write_text(f'extern "C" {{\nint nvfp4_unsupported(const char *);\n{bodies}}}\n')
            self._run([*command, "-fPIC", str(stubs)], library.name)
        return library

    def _run(self, command: Sequence[str], what: str) -> str:
        return compilers.run_compiler(self.tools, command, self.work, what)


def _ptx_of(compiled: Path, virtual: str = "") -> Path:
    """Return the path of the PTX that was compiled with an object. virtual: the architecture of the
    PTX, for images other than the first."""
    return compiled.with_suffix(f".{virtual}.ptx" if virtual else ".ptx")


def _with_standard(given: list[str], slim: bool) -> list[str]:
    """Return the language that the submission asks for; torch's own headers need C++20."""
    chosen = [word for word in given if word.startswith(("-std", "--std"))]
    if slim and chosen:
        return given
    others = [word for word in given if word not in chosen]
    return ["-std=c++17" if slim else "-std=c++20", *others]


_INSTEAD_OF = {
    **dict.fromkeys(
        (
            *("torch/all.h", "torch/cuda.h", "torch/extension.h", "torch/library.h"),
            *("torch/python.h", "torch/script.h", "torch/torch.h", "torch/types.h"),
            *("torch/csrc/utils/pybind.h", "ATen/ATen.h", "ATen/Dispatch.h", "ATen/Functions.h"),
            *("ATen/Tensor.h", "ATen/core/Tensor.h", "c10/core/ScalarType.h"),
            *("c10/core/TensorOptions.h", "c10/macros/Macros.h", "c10/util/Exception.h"),
            *("c10/util/Half.h", "c10/util/BFloat16.h", "c10/util/Optional.h"),
            *("pybind11/pybind11.h", "pybind11/stl.h"),
        ),
        "torch.h",
    ),
    "ATen/cuda/CUDAContext.h": "cuda.h STREAM EXCEPTIONS PROPERTIES",
    "ATen/cuda/CUDAContextLight.h": "cuda.h PROPERTIES",
    "ATen/cuda/CUDAUtils.h": "cuda.h STREAM EXCEPTIONS PROPERTIES",
    "ATen/cuda/Exceptions.h": "cuda.h EXCEPTIONS",
    "c10/cuda/CUDAException.h": "cuda.h",
    "c10/cuda/CUDAFunctions.h": "cuda.h",
    "c10/cuda/CUDAGuard.h": "cuda.h STREAM GUARD",
    "c10/cuda/CUDAStream.h": "cuda.h STREAM",
}
"""The header in slim_torch/ that replaces each of torch's, and the parts of it that torch's has;
all others are torch's own."""


def slim_headers(folder: Path) -> list[Path]:
    """Write headers of torch's names to a folder, each of which includes one of slim_torch/; return
    the folders that a compiler needs."""
    for name, replacement in _INSTEAD_OF.items():
        ours, *parts = replacement.split()
        lines = [*(f"#define SLIM_{part}" for part in parts), f"#include <slim_torch/{ours}>\n"]
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("\n".join(lines), encoding="utf-8")
    return [folder, _HERE]


def build_shared_objects() -> None:
    """Compile what every extension with the slim headers is linked to. Raises MissingToolchain and
    CompileError.
    """
    folder = compilers.cache_folder()
    folder.mkdir(parents=True, exist_ok=True)
    shared = _Compilation(Request("shared", (), (), (0, 0)), find_toolchain(), folder, True)
    try:
        with ThreadPoolExecutor() as pool:
            list(pool.map(shared._own_object, shared._own_sources()))
    finally:
        shutil.rmtree(shared.work, ignore_errors=True)


if __name__ == "__main__":
    build_shared_objects()
