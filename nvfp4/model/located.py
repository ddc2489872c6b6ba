"""PTX whose machine code says from which line of the PTX it comes."""

from bisect import bisect_left

from nvfp4.emulator.ptx.lexer import LINE_DIRECTIVES, Cursor

_FILE = "kernel.ptx"


class Lines:
    """The lines of a text, by position."""

    def __init__(self, text: str) -> None:
        self._ends = [place for place, character in enumerate(text) if character == "\n"]

    def of(self, position: int) -> int:
        """The line, from 1, of a character; 0 for position 0, which stands for no statement."""
        return bisect_left(self._ends, position) + 1 if position else 0


def located(ptx: str) -> str:
    """Return the PTX with a new `.loc` in front of each statement, whose line number is the
    position of the statement in `ptx`. Raises PtxSyntaxError."""
    reader = _Reader(ptx)
    reader.read()
    return "".join([*reader.found, f'\n.file 1 "{_FILE}"\n'])


class _Reader(Cursor):
    """found: pieces of the text, read as the emulator reads it."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.found: list[str] = []
        self._copied = 0

    def read(self) -> None:
        """Read the whole module."""
        while self.now.kind != "end":
            if self.now.text in LINE_DIRECTIVES:
                self._line_directive()
            elif self.now.text == ".section":  # debugging information, of the old lines
                self._copy()
                self.at += 1
                self.argument("directive")
                self.skip_braces()
                self._skip_to_here()
            elif self.now.text in (".entry", ".func"):
                self._function()
            else:
                self.at += 1
        self._copy()

    def _function(self) -> None:
        while self.now.text not in ("{", ";"):
            self._must_go_on()
            self.at += 1
        if self.take().text == "{":
            self._body()

    def _body(self) -> None:
        """Behind the brace that opens it."""
        depth = 1
        while depth:
            self._must_go_on()
            text = self.now.text
            if text in LINE_DIRECTIVES:
                self._line_directive()
            elif text == "}":
                depth -= 1
                self.at += 1
            elif self.now.kind == "word" and self.tokens[self.at + 1].text == ":":
                self.at += 2
            else:
                if text == "{" or text == "@" or self.now.kind == "word":
                    self._copy()
                    self.found.append(f"\n.loc 1 {self.now.start} 0\n")
                if self.accept("{"):
                    depth += 1
                else:
                    self.skip_statement()

    def _line_directive(self) -> None:
        replaced = self.now.text in (".loc", ".file")
        self._copy()
        self.directive()
        if replaced:
            self._skip_to_here()

    def _copy(self) -> None:
        """Copy the text read since the last copy."""
        self.found.append(self.text[self._copied : self.now.start])
        self._copied = self.now.start

    def _skip_to_here(self) -> None:
        self._copied = self.now.start

    def _must_go_on(self) -> None:
        if self.now.kind == "end":
            raise self.error("a '{' has no '}'")
