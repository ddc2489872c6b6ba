"""What nvcc puts into host code for the driver: which file a module comes from."""

from __future__ import annotations

import re

from nvfp4.records.launch_errors import UnsupportedCall

_NO_CODE = re.compile(r"//[^\n]*|/\*.*?\*/|\.file[^\n]*", re.DOTALL)
_TEXT = re.compile(rb"\.version [^\0]*")


def module_of(code: bytes, texts: tuple[str, ...]) -> tuple[str, ...]:
    """The PTX, of several texts, that stands in a module's code, which is not compressed. Raises
    UnsupportedCall."""
    held = [_bare(each.decode("utf-8", "replace")) for each in _TEXT.findall(code)]
    for text in texts:
        if _bare(text) in held:
            return (text,)
    raise UnsupportedCall(
        "it cannot be told which of several .cu files a module comes from",
        hint="put the kernels into one file",
    )


def _bare(text: str) -> str:
    """What of a text is code: nvcc takes comments out, and messages name files otherwise."""
    return " ".join(_NO_CODE.sub(" ", text).split())
