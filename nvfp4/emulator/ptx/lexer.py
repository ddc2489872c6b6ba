"""Tokens of PTX. A dotted opcode such as `ld.global.v4.u32` is one word."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from nvfp4.emulator.errors import PtxSyntaxError, SourceLocation


class Token(NamedTuple):
    """kind: word, directive (starts with a dot), number, string, mark, or end."""

    kind: str
    text: str
    line: int
    start: int


_TOKEN = re.compile(
    r"""
      (?P<blank>[ \t\r\f\v]+|//[^\n]*)
    | (?P<newline>\n)
    | (?P<comment>/\*.*?\*/)
    | (?P<string>"[^"\n]*")
    | (?P<directive>\.[A-Za-z_0-9]\w*(?:::\w+)*)
    | (?P<number>0[fF][0-9a-fA-F]{8}|0[dD][0-9a-fA-F]{16}|0[xX][0-9a-fA-F]+U?|0[bB][01]+U?
        |\d+\.\d*(?:[eE][+-]?\d+)?|\d+[eE][+-]?\d+|\d+U?)
    | (?P<word>[%$A-Za-z_][\w$%]*(?:(?:\.|::)\w+)*)
    | (?P<mark>[{}()\[\]<>,;:|!@+\-=*~])
    """,
    re.VERBOSE | re.DOTALL,
)


def tokens(text: str) -> Iterator[Token]:
    """All tokens of a PTX module, then one of kind `end`."""
    line = 1
    position = 0
    end = len(text)
    match = _TOKEN.match
    while position < end:
        found = match(text, position)
        if found is None:
            if text[position] == "\0":
                break
            raise PtxSyntaxError(
                f"unexpected character {text[position]!r}", where=SourceLocation("(module)", line)
            )
        kind = found.lastgroup
        position = found.end()
        if kind == "newline":
            line += 1
        elif kind == "comment":
            line += found.group().count("\n")
        elif kind != "blank":
            assert kind is not None
            yield Token(kind, found.group(), line, found.start())
    yield Token("end", "", line, end)
