"""A place in the tokens of a PTX module, and how to move on from it."""

from __future__ import annotations

import re

from nvfp4.emulator.errors import PtxSyntaxError, SourceLocation
from nvfp4.emulator.ptx.lexer import Token, tokens

_INTEGER = re.compile(r"(0[xX][0-9a-fA-F]+|0[bB][01]+|0[0-7]*|[1-9][0-9]*)U?")


class Cursor:
    """Takes tokens one after the other. `function` is what errors name as their place."""

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

    def skip_line(self) -> list[str]:
        line = self.now.line
        words = []
        while self.now.line == line and self.now.kind != "end":
            words.append(self.take().text)
        return words

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
