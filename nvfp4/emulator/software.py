"""Conversions that a kernel does in software because of the architecture it was compiled for.

cuda_fp4.h and cuda_fp6.h convert by one instruction where the architecture has it. sm_100a and
sm_100f have it. sm_100, for which torch compiles unless an option names an architecture, does not.
"""

import re
from collections.abc import Iterator, Mapping
from functools import lru_cache

from nvfp4.records.failures import Finding
from nvfp4.records.source import SourceLine, SourceLines, shown

CODE = "software_conversion"

_TARGET = re.compile(r"^\s*\.target\s+sm_(\w+)", re.MULTILINE)
_HEADERS = {"100": re.compile(r"/cuda_fp[46]\.hpp$"), "75": re.compile(r"/cuda_fp[468]\.hpp$")}
"""Headers that convert in software, by the default architectures of torch and nvcc on a B200."""
_OWN = "100a"
HINT = f'extra_cuda_cflags=["-gencode=arch=compute_{_OWN},code=sm_{_OWN}"]'


@lru_cache(maxsize=64)
def software_lines(ptx: str) -> Mapping[int, SourceLine]:
    """Return the lines of a PTX text, with the user's line of each, that convert in software
    although the GPU's own architecture has an instruction for it."""
    target = _TARGET.search(ptx)
    headers = _HEADERS.get(target[1]) if target else None
    return dict(_found(ptx, headers)) if headers and "/cuda_fp" in ptx else {}


def _found(ptx: str, headers: re.Pattern[str]) -> Iterator[tuple[int, SourceLine]]:
    sources = SourceLines(ptx)
    for number, text in enumerate(ptx.split("\n"), 1):
        if not text.startswith("\t") or text.startswith(("\t.", "\t//")):
            continue  # not an instruction that a compiler wrote
        source = sources.at(number)
        if source is None or not any(headers.search(each.file) for each in source.chain()):
            continue
        user = source.users()
        if user is not None:
            yield number, user


def software_conversions(ptx: str, kernel: str, runs: Mapping[int, int]) -> list[Finding]:
    """Return one finding on the instructions that convert in software, at the first such line, or
    an empty list if none was executed. runs: warp instructions by line of the PTX."""
    lines = {n: user for n, user in software_lines(ptx).items() if runs.get(n)}
    if not lines:
        return []
    spent, whole = sum(runs[n] for n in lines), sum(runs.values())
    first = min(lines.values(), key=lambda each: (each.file, each.line))
    target = _TARGET.search(ptx)
    assert target is not None
    message = (
        f"{spent:,} of {whole:,} warp instructions convert in software: the file is compiled "
        f"for sm_{target[1]}, which lacks the instructions that sm_{_OWN} has"
    )
    return [Finding(CODE, message, kernel, shown(first.file), HINT, line=first.line, count=spent)]
