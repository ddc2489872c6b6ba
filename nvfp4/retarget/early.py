"""Refuse sources that this GPU cannot run before torch builds them.

A build with torch's headers takes a minute or more, and only its PTX shows the instructions used.
Sources that name an instruction which this GPU lacks are therefore first compiled for the device
alone with the slim headers, in seconds. If these do not suffice, or if the PTX can be rewritten,
the normal build follows.
"""

import re
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from nvfp4.capture.cuda import flags
from nvfp4.capture.cuda.architectures import fits
from nvfp4.capture.cuda.build import slim_headers
from nvfp4.capture.cuda.toolchain import python_include
from nvfp4.retarget.rewrite import rewrite
from nvfp4.retarget.targets import Target, refusal, target_of

_OPCODE = re.compile(r"\b[a-z]\w*(?:(?:\.|::)\w+)+")
_LONGEST_S = 120.0


def refuse_early(nvcc: Path, arch: str, number: int, named: Mapping[str, Any]) -> None:
    """Raise NotRetargetable where no build can lead to code for this GPU. arch: what is compiled
    for. number: this GPU's architecture, such as 90. named: arguments of torch's function that
    builds."""
    given = list(named.get("extra_cuda_cflags") or ())
    if fits(given, number):
        return
    target = target_of(divmod(number, 10))
    virtual = arch.replace("sm_", "compute_")
    command: list[str | Path] = [nvcc, "-ptx", f"-arch={virtual}", "-lineinfo"]
    command += flags.kept(given)
    command += [f"-I{folder}" for folder in named.get("extra_include_paths") or ()]
    for source in map(Path, named.get("sources", ())):
        if source.suffix == ".cu" and _names_what_is_missing(source, target):
            ptx = _ptx(command, source)
            if ptx is not None:
                rewrite(ptx, str(target))


def _ptx(command: list[str | Path], source: Path) -> str | None:
    """Compile a source to PTX; None if the slim headers are not enough."""
    from torch.utils.cpp_extension import COMMON_NVCC_FLAGS

    words = [*command, *COMMON_NVCC_FLAGS]
    if not any(str(word).startswith(("-std", "--std")) for word in words):
        words.append("-std=c++17")
    with tempfile.TemporaryDirectory(prefix="early-") as made:
        target = Path(made, "k.ptx")
        headers: list[str | Path] = [*slim_headers(Path(made, "headers")), python_include()]
        words += [word for folder in headers for word in ("-isystem", folder)]
        try:
            subprocess.run(
                [*words, source, "-o", target], check=True, capture_output=True, timeout=_LONGEST_S
            )
            return target.read_text(encoding="utf-8", errors="surrogateescape")
        except (subprocess.SubprocessError, OSError):
            return None


def _names_what_is_missing(source: Path, target: Target) -> bool:
    """Whether a source names an instruction that the target lacks."""
    try:
        text = source.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return False
    return any(refusal(opcode, target) for opcode in set(_OPCODE.findall(text)))
