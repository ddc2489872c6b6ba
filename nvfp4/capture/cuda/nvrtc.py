"""CUDA text compiled at run time to PTX, as NVRTC does; by nvcc, which knows the same language."""

import hashlib
import json
import os
import re
import shlex
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from nvfp4.capture.activity import busy
from nvfp4.capture.cuda import image_headers
from nvfp4.capture.cuda.architectures import OLDEST, split_architectures
from nvfp4.capture.cuda.compilers import (
    CompileError,
    own_identity,
    remembered,
    run_compiler,
)
from nvfp4.capture.cuda.flags import kept, single_words
from nvfp4.capture.cuda.source_lines import CXX_IN_PYTHON, SHOWN_AS
from nvfp4.capture.cuda.toolchain import Toolchain, find_toolchain
from nvfp4.capture.frames import is_installed
from nvfp4.records.launch_errors import UnsupportedCall

# Options of NVRTC that nvcc does not have, or that do not change what the PTX computes.
_DROPPED = re.compile(
    r"--?(?:(?:device-debug|G|dopt|device-int128|device-float128|disable-warnings|w|pch|create-pch|"
    r"use-pch|pch-.*|minimal|no-source-include|brief-diagnostics|split-compile|fdevice-time-trace|"
    r"builtin-.*|extra-device-vectorization|relocatable-device-code|modify-stack-limit|no-cache|"
    r"version-ident|restrict|time|optimization-info|opt-info)(?:=.*)?|dlink-time-opt|optix-ir|gen-opt-lto)"
)
_ALL_ON_DEVICE = re.compile(r"--?(?:default-device|device-as-default-execution-space)")
_PRE_INCLUDE = re.compile(r"(?:--pre-include|-include)=(.*)")
_OF_NVRTC = re.compile(r"\b__(?:CUDACC_RTC|NVCC)__\b")
"""Macros by which a text can tell NVRTC from nvcc: the one has the first only, the other one the
second only."""
_NAME = "nvfp4_name_"
_NAMED = re.compile(
    rf"^[^\n]*\.global [^\n]*\b{_NAME}(\d+) = (?:generic\()?([\w$]+)\)?;\n", re.MULTILINE
)


@dataclass(frozen=True)
class Program:
    """source: CUDA text, with #line directives. name: of the file for messages. headers: name and
    text of files that it may include. expressions: names of kernels and variables, as C++ writes
    them, template arguments included. options: NVRTC's.
    """

    source: str
    name: str
    headers: tuple[tuple[str, str], ...] = ()
    expressions: tuple[str, ...] = ()
    options: tuple[str, ...] = ()


@dataclass(frozen=True)
class Compiled:
    """ptx: the module. lowered: by expression, the name that it has there."""

    ptx: str
    lowered: dict[str, str]


def compile_program(program: Program, folder_shown: Path) -> Compiled:
    """Compile, or find what was compiled before. Raises MissingToolchain, CompileError and
    UnsupportedCall.

    folder_shown: of the Python file that the source stands in.
    """
    tools = find_toolchain()
    digest = hashlib.sha256(json.dumps(asdict(program)).encode() + own_identity(tools))
    for path in _own_headers(program.options, tools):
        stat = path.stat()
        digest.update(f"{path} {stat.st_size} {stat.st_mtime_ns}".encode())
    key = f"nvrtc-{digest.hexdigest()[:32]}"
    _, known = remembered(key, lambda folder: _compile(program, tools, folder))
    return Compiled(
        known["ptx"].replace(SHOWN_AS, f"{folder_shown}{CXX_IN_PYTHON}"), known["lowered"]
    )


def _own_headers(options: Sequence[str], tools: Toolchain) -> list[Path]:
    """Files that the program may include besides the toolkit's and those of packages."""
    named = (Path(word[2:]).resolve() for word in nvcc_options(options) if word.startswith("-I"))
    toolkit = tools.include.resolve()
    return [
        path
        for folder in named
        if folder != toolkit and not is_installed(folder)
        for path in sorted(folder.rglob("*"))
    ]


def nvcc_options(options: Sequence[str]) -> list[str]:
    """NVRTC's options as nvcc takes them, without the architecture. Raises UnsupportedCall."""
    for option in options:
        if _ALL_ON_DEVICE.fullmatch(option):
            raise UnsupportedCall(
                f"the NVRTC option {option} has no counterpart here",
                hint="annotate functions with __device__",
            )
    # An option is one string and may hold spaces, say in a folder's name.
    words = kept([shlex.quote(_one_word(option)) for option in options])
    pre_included = (_PRE_INCLUDE.fullmatch(word) for word in words)
    return [
        f"-include={found[1]}" if found else word
        for word, found in zip(words, pre_included, strict=True)
        if not _DROPPED.fullmatch(word)
    ]


def _one_word(option: str) -> str:
    """`-I folder` and the like without the space, which nvcc wants to be two words; CUTLASS's
    folder is that of this machine.
    """
    for long, short in (("--include-path", "-I"), ("--define-macro", "-D"), ("--std", "-std")):
        if option.startswith((f"{long}=", f"{long} ")):
            option = option.replace(long, short, 1).replace("=", "=" if short == "-std" else "", 1)
    option = re.sub(r"^(-[IDU])\s+", r"\1", option)
    return f"-I{image_headers.found_instead(option[2:])}" if option.startswith("-I") else option


def _as_of_nvrtc(text: str) -> str:
    """The toolkit's own headers do not find with NVRTC what nvcc includes first, so they keep the
    macros as they are."""
    return _OF_NVRTC.sub(r"NVFP4\g<0>", text)


@busy("compiling")
def _compile(program: Program, tools: Toolchain, folder: Path) -> dict[str, object]:
    _, images = split_architectures(single_words(map(shlex.quote, program.options)))
    virtual = images[0].virtual if images else OLDEST
    references = "".join(
        f"__device__ const void *{_NAME}{i} = (const void *)({each});\n"
        for i, each in enumerate(program.expressions)
    )
    text = f'{_as_of_nvrtc(program.source)}\n#line 1 "name expressions"\n{references}'
    with tempfile.TemporaryDirectory(prefix="compile-", dir=folder) as name:
        work = Path(name)
        for header, said in program.headers:
            path = Path(os.path.normpath(work / header))
            if work not in path.parents:
                return {"error": f"a header may not be named {header}"}
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(_as_of_nvrtc(said), encoding="utf-8")
        source = work / (re.sub(r"[^\w.-]+", "_", program.name).removesuffix(".cu") + ".cu")
        source.write_text(text, encoding="utf-8")
        ptx = work / "program.ptx"
        command = [
            *(str(tools.nvcc), "-ccbin", tools.host_compiler, "-ptx", "-lineinfo"),
            *(f"-gencode=arch={virtual},code={virtual}", f"-I{work}"),
            "-DNVFP4__CUDACC_RTC__=1",
            *nvcc_options(program.options),
            *(str(source), "-o", str(ptx)),
        ]
        try:
            run_compiler(tools, command, work, program.name)
        except CompileError as error:
            image_headers.refuse_if_missing(error.message, tools.include)
            if _OF_NVRTC.search(program.source):
                raise UnsupportedCall(
                    "the text has code for NVRTC alone (__CUDACC_RTC__), which nvcc cannot compile"
                ) from None
            return {"error": error.message}
        compiled = ptx.read_text(encoding="utf-8")
    lowered = {program.expressions[int(i)]: name for i, name in _NAMED.findall(compiled)}
    return {"ptx": _NAMED.sub("", compiled), "lowered": lowered}
