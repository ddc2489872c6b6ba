"""Compiles C++ against the slim headers and loads what comes out."""

import functools
import importlib.util
import re
import shutil
import subprocess
import sysconfig
import tempfile
from pathlib import Path
from types import ModuleType

_cuda = Path(__file__).resolve().parents[1] / "nvfp4" / "capture" / "cuda"

name = "slim_test_module"
"""TORCH_EXTENSION_NAME of everything here."""

flags = [f"-DTORCH_EXTENSION_NAME={name}", "-I", str(_cuda / "headers")]
flags += ["-I", sysconfig.get_paths()["include"]]


def compile_object(source: Path, target: Path, *more: str) -> Path:
    """An object file of a C++ source; returns the target."""
    options = ["-std=c++17", "-O0", "-fPIC", "-fvisibility=hidden", *flags, *more]
    subprocess.run(["g++", *options, "-c", str(source), "-o", str(target)], check=True)
    return target


@functools.cache
def _folder() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory()


@functools.cache
def _slim_torch() -> Path:
    return compile_object(_cuda / "slim_torch.cpp", Path(_folder().name) / "slim_torch.o")


def load(compiled: Path, folder: Path) -> ModuleType:
    """The module of an object file, linked in a folder."""
    library = folder / f"{name}.so"
    options = ["-shared", "-Wl,-Bsymbolic", str(compiled), str(_slim_torch()), "-o", str(library)]
    subprocess.run(["g++", *options], check=True)
    spec = importlib.util.spec_from_file_location(name, library)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def cuda_headers() -> Path | None:
    """The folder of cuda_runtime_api.h, as nvcc names it; None without nvcc."""
    if shutil.which("nvcc") is None:
        return None
    command = ["nvcc", "--dryrun", "-c", "nothing.cu"]
    said = subprocess.run(command, capture_output=True, text=True, check=False).stderr
    found = re.search(r'INCLUDES="-I(.+?)"', said)
    return Path(found.group(1)) if found else None
