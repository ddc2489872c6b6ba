"""Facts about the present device, and the versions of the software on it."""

import importlib.metadata
import platform
import re
from contextlib import suppress
from pathlib import Path

import torch

from nvfp4.capture.cuda.toolchain import MissingToolchain, find_toolchain
from nvfp4.records.options import Options


def device_facts(device: torch.device, options: Options) -> dict[str, str | None]:
    """Return the facts about the device by the names of docs/json.md; None for what does not apply.

    emulates: the architecture that kernels are emulated for, None on a GPU. flush: the L2 flush
    before a timed call on a GPU. nvcc: the compiler of CUDA C++ submissions; "none: ..." says why
    they cannot be judged without a GPU.
    """
    if device.type == "cuda":
        major, minor = torch.cuda.get_device_capability(device)
        name, capability = torch.cuda.get_device_name(device), f"{major}.{minor}"
    else:
        named = _first("/proc/cpuinfo", r"^model name\s*:\s*(.+)$")
        name, capability = named or platform.processor() or platform.machine(), None
    return {
        "kind": device.type,
        "name": name,
        "capability": capability,
        "driver": driver_version(),
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "cutlass_dsl": _package_version("nvidia-cutlass-dsl"),
        "triton": _package_version("triton"),
        "nvcc": _nvcc_version(),
        "emulates": options.arch if device.type == "cpu" else None,
        "flush": options.flush if device.type == "cuda" else None,
    }


def _nvcc_version() -> str:
    try:
        return ".".join(map(str, find_toolchain().version))
    except MissingToolchain as missing:
        return f"none: {' '.join(str(missing).split())}"


def _package_version(name: str) -> str | None:
    """Return the version of an installed package; it is not imported."""
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def driver_version() -> str | None:
    """Return the version of the GPU's driver; None where there is none."""
    return _first("/proc/driver/nvidia/version", r"\b(\d+\.\d+(?:\.\d+)?)\b")


def _first(path: str, pattern: str) -> str | None:
    """Return what the group of a pattern matches first in a file; None without either."""
    with suppress(OSError):
        found = re.search(pattern, Path(path).read_text(), re.MULTILINE)
        return found[1] if found else None
    return None
