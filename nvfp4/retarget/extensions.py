"""CUDA C++ extensions on a GPU that they may not be written for: torch calls `nvfp4.retarget.nvcc`.

Imports nothing heavy: most submissions have no extension, or one that compiles as it is.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shlex
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from nvfp4.capture.imports import when_imported

REPORT = ".retargeted.json"
"""Is appended to the name of an object: a file with what was rewritten in it."""

_VARIABLE = "PYTORCH_NVCC"
_OLDEST = 80
_MAPPED = re.compile(r"(/.*\.so)$", re.MULTILINE)


def start(retarget: str, arch: str, capability: tuple[int, int]) -> None:
    """From now on torch builds extensions for this GPU, and through PTX of `arch` where need be.

    retarget: "auto" (where they cannot be built as they are) or "always". capability: the GPU's.
    A compiler that the user has chosen by PYTORCH_NVCC stays.
    """
    number = 10 * capability[0] + capability[1]
    own = retarget == "auto" and arch.strip("sm_af") == str(number)
    if _VARIABLE not in os.environ and not own and number >= _OLDEST:
        when_imported("torch.utils.cpp_extension", lambda: _offer(retarget, arch, number))


def _offer(retarget: str, arch: str, number: int) -> None:
    from torch.utils.cpp_extension import CUDA_HOME

    if CUDA_HOME is not None:
        program = Path(__file__).with_name("nvcc.py")
        nvcc = Path(CUDA_HOME, "bin", "nvcc")
        words = (sys.executable, program, retarget, arch, number, _rules(), nvcc)
        os.environ[_VARIABLE] = shlex.join(map(str, words))


def _rules() -> str:
    """An identity of what rewrites: with other rules everything is built again."""
    digest = hashlib.sha256()
    spec = find_spec("nvfp4.retarget")
    assert spec is not None
    for folder in spec.submodule_search_locations or ():
        for path in sorted(Path(folder).glob("*.py")):
            digest.update(path.read_bytes())
    return digest.hexdigest()[:12]


class Extensions:
    """What was rewritten in the extensions that this process has loaded."""

    def __init__(self, maps: Path = Path("/proc/self/maps")) -> None:
        """maps: the mapped files of this process, as Linux lists them."""
        self._maps = maps
        self._seen: set[str] = set()
        self._kernels: list[dict[str, Any]] = []

    def kernels(self) -> list[dict[str, Any]]:
        """An entry for each kernel; see `retarget.report.RewriteReport.entries`."""
        maps = self._maps.read_text(encoding="utf-8", errors="replace")
        for library in dict.fromkeys(_MAPPED.findall(maps)):
            if library not in self._seen:
                self._seen.add(library)
                for report in sorted(Path(library).parent.glob(f"*{REPORT}")):
                    self._kernels += json.loads(report.read_text(encoding="utf-8"))
        return list(self._kernels)
