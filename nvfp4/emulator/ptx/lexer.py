"""Tokens of PTX, and a place in them. A dotted opcode such as `ld.global.v4.u32` is one word."""

import re
from collections.abc import Iterator
from typing import NamedTuple

from nvfp4.emulator.errors import PtxSyntaxError, SourceLocation


class Token(NamedTuple):
    """A token of PTX."""

    kind: str
    """word, directive (starts with a dot), number, string, mark, or end."""
    text: str
    line: int
    start: int


_TOKEN = re.compile(
    r"""
    (?=(?P<blank>(?:[ \t\r\f\v\n]+|//[^\n]*|/\*.*?\*/)*))(?P=blank)  # without going back
    (?: (?P<string>"[^"\n]*")
    | (?P<directive>\.[A-Za-z_0-9]\w*(?:::\w+)*)
    | (?P<number>0[fF][0-9a-fA-F]{8}|0[dD][0-9a-fA-F]{16}|0[xX][0-9a-fA-F]+U?|0[bB][01]+U?
        |\d+\.\d*(?:[eE][+-]?\d+)?|\d+[eE][+-]?\d+|\d+U?)
    | (?P<word>[%$A-Za-z_][\w$%]*(?:(?:\.|::)\w+)*)
    | (?P<mark><<|>>|<=|>=|==|!=|&&|\|\||[{}()\[\]<>,;:|!@+\-=*~/&^?])
    | (?P<end>\0|\Z)
    | (?P<other>.))
    """,
    re.VERBOSE | re.DOTALL | re.ASCII,
)


def tokens(text: str) -> Iterator[Token]:
    """All tokens of a PTX module, then one of kind `end`."""
    line, position = 1, 0
    for found in _TOKEN.finditer(text):
        kind = found.lastgroup
        assert kind is not None
        start = found.start(kind)
        line += text.count("\n", position, start)
        position = start
        if kind == "end":
            break
        if kind == "other":
            message = f"unexpected character {text[start]!r}"
            raise PtxSyntaxError(message, where=SourceLocation("(module)", line))
        yield Token(kind, found[kind], line, start)
    yield Token("end", "", line, len(text))


LINE_DIRECTIVES = {
    ".version": ("number",), ".target": ("word",), ".address_size": ("number",),
    ".loc": ("number",) * 3, ".file": ("number", "string"),
}  # fmt: skip
"""Directives that end with their arguments, without a semicolon, and the kind of the first
argument."""

WARP_SIZE = 32

_INTEGER = re.compile(r"(0[xX][0-9a-fA-F]+|0[bB][01]+|0[0-7]*|[1-9][0-9]*)U?")


class Cursor:
    """Takes tokens in order. function: the one that errors name as their place."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.tokens = list(tokens(text))
        self.at = 0
        self.function = "(module)"

    @property
    def now(self) -> Token:
        return self.tokens[self.at]

    def take(self) -> Token:
        token = self.tokens[self.at]
        self.at += 1
        return token

    def accept(self, text: str) -> bool:
        if self.now.text == text and self.now.kind != "string":
            self.at += 1
            return True
        return False

    def expect(self, text: str) -> Token:
        if self.now.text != text:
            raise self.error(f"expected {text!r}, found {self.now.text or 'the end'!r}")
        return self.take()

    def word(self) -> str:
        if self.now.kind != "word":
            raise self.error(f"expected a name, found {self.now.text or 'the end'!r}")
        return self.take().text

    def error(self, message: str) -> PtxSyntaxError:
        return PtxSyntaxError(message, where=SourceLocation(self.function, self.now.line))

    def directive(self) -> str:
        """Take one of ``LINE_DIRECTIVES`` with its arguments and no more, and return the first: as
        an assembler reads it, a statement may follow in the same line."""
        kinds = LINE_DIRECTIVES[self.take().text]
        found, *_ = [self.argument(kind) for kind in kinds]
        while self.accept(","):
            if self.accept("inlined_at"):
                for _ in range(3):
                    self.argument("number")
            elif self.accept("function_name"):
                self.take()
                if self.accept("+"):
                    self.argument("number")
            else:  # another target, a file's time or size
                self.argument("word" if kinds == ("word",) else "number")
        return found

    def argument(self, kind: str) -> str:
        """Takes a token of a kind."""
        if self.now.kind != kind:
            raise self.error(f"expected a {kind}, found {self.now.text or 'the end'!r}")
        return self.take().text

    def skip_statement(self) -> None:
        while not self.accept(";"):
            if self.now.kind == "end":
                raise self.error("a statement has no ';'")
            self.at += 1

    def skip_braces(self) -> None:
        self.expect("{")
        depth = 1
        while depth:
            token = self.take()
            if token.kind == "end":
                raise self.error("a '{' has no '}'")
            depth += (token.text == "{") - (token.text == "}")

    def integer(self) -> int:
        if self.now.kind != "number" or not _INTEGER.fullmatch(self.now.text):
            raise self.error(f"expected an integer, found {self.now.text or 'the end'!r}")
        text = self.take().text.rstrip("U")
        # As in C, a leading zero makes a number octal.
        return int(text, 8 if re.fullmatch("0[0-7]+", text) else 0)

    def count(self) -> int:
        """Take an integer where no expression may stand, such as the size of an array."""
        return WARP_SIZE if self.accept("WARP_SZ") else self.integer()
