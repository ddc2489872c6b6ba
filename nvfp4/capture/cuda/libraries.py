"""Shared libraries that stand in for the driver's and NVRTC's, for packages that load those."""

from __future__ import annotations

import functools
from pathlib import Path

from nvfp4.capture.cuda.compilers import compiled_once
from nvfp4.capture.cuda.toolchain import find_toolchain, python_include

_HERE = Path(__file__).parent
_SOURCES = {"cuda": ("driver.cpp", "driver_kernels.cpp"), "nvrtc": ("nvrtc.cpp",)}


@functools.cache
def library(name: str, soname: str = "") -> Path:
    """The library for "cuda" or "nvrtc"; compiled once. Raises MissingToolchain.

    soname: with one, the loader takes the library for any of this name, once it is loaded.
    """
    tools = find_toolchain()
    command = [
        *(tools.host_compiler, "-std=c++17", "-O1", "-fPIC", "-shared"),
        *("-Wl,-Bsymbolic", *([f"-Wl,-soname,{soname}"] if soname else [])),
        *("-isystem", str(tools.include), "-isystem", python_include()),
        *(str(_HERE / source) for source in _SOURCES[name]),
        "-ldl",
    ]
    return compiled_once(tools, soname, f"libnvfp4_{name}.so", command)
