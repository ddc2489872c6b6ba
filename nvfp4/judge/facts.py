"""Facts about the present device, and the versions of the software on it."""

import importlib.metadata
import platform
import re
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
        name, capability = _cpu_name(), None
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
    try:
        text = Path("/proc/driver/nvidia/version").read_text()
    except OSError:
        return None
    version = re.search(r"\b\d+\.\d+(\.\d+)?\b", text)
    return version.group() if version else None


def _cpu_name() -> str:
    try:
        info = Path("/proc/cpuinfo").read_text()
    except OSError:
        info = ""
    model = re.search(r"^model name\s*:\s*(.+)$", info, re.MULTILINE)
    return model.group(1) if model else platform.processor() or platform.machine()
