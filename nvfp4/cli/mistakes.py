"""Mistakes that parsing a submission finds, before anything runs."""

import ast
import re
import tokenize
import warnings
from dataclasses import dataclass, replace
from io import BytesIO

from rich.cells import cell_len

from nvfp4.cli.text import one_line, visible

longest_parsed_bytes = 4 << 20
"""A larger file is not parsed; its mistakes appear only when it is imported."""

_longest_line = 160


@dataclass(frozen=True)
class Mistake:
    """Why a submission cannot be judged at all."""

    code: str
    """syntax, encoding, empty or import."""
    message: str
    file: str
    line: int | None = None
    """From 1; None for the file as a whole."""
    column: int | None = None
    """From 1."""
    source: str | None = None
    """The line."""
    hint: str | None = None

    @property
    def text(self) -> str:
        """The text in the style of compilers: place and message, the line, a caret, the hint."""
        parts = one_line(self.file), self.line, self.column
        place = ":".join(str(each) for each in parts if each)
        lines = [f"{place}: {self.message}"]
        if self.source:
            lines.append(f"{self.line:>6} | {self.source}")
            if self.column and self.column <= len(self.source) + 1:
                lines.append(f"       | {' ' * cell_len(self.source[: self.column - 1])}^")
        if self.hint:
            lines.append(f"hint: {self.hint}")
        return "\n".join(lines)

    def of_file(self, file: str) -> "Mistake":
        """Return the mistake with the name of the file in place of the judged copy's name."""
        alone = rf"(?<![\w./-]){re.escape(self.file)}\b"
        return replace(self, file=file, message=re.sub(alone, lambda _: file, self.message))


def first_mistake(file: str, content: bytes) -> Mistake | None:
    """Return a mistake that surely keeps a submission from being judged; None if there is none.

    file: the name to show.
    """
    if len(content) > longest_parsed_bytes:
        return None
    if (unreadable := _unreadable(content)) is not None:
        return Mistake("encoding", f"it is not text: {unreadable}", file, hint="save it as UTF-8")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(content, file)
            # The checks that need more than the grammar, such as of a return outside a function.
            compile(tree, file, "exec", dont_inherit=True)
    except SyntaxError as error:
        line = error.lineno or None
        raw = _raw_line(content, line)
        column = min(error.offset or 0, len(raw) + 1) if line else 0
        message = f"{type(error).__name__}: {visible(error.msg)}"
        hint = _syntax_hint(file, content, raw.strip())
        source = visible(raw.expandtabs(1))[:_longest_line] or None
        return Mistake("syntax", message, file, line, column if column > 0 else None, source, hint)
    except (ValueError, RecursionError, MemoryError):
        return None
    if not tree.body:
        what = "it holds only comments" if content.strip() else "it is empty"
        return Mistake("empty", what, file, hint="nvfp4 new writes a submission to start from")
    return None


def _unreadable(content: bytes) -> str | None:
    """Return why Python cannot decode the file; None if it can."""
    if b"\0" in content:
        return f"byte {content.index(0):,} is zero"
    try:
        encoding = tokenize.detect_encoding(BytesIO(content).readline)[0]
    except SyntaxError as error:  # an encoding that Python does not know, or none
        if "unknown encoding" in error.msg:
            return visible(error.msg)
        encoding = "utf-8"
    try:
        content.decode(encoding)
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        return f"byte {content[error.start]:#x} in line {line} is not {encoding.upper()}"
    except (LookupError, UnicodeError) as error:  # no encoding of text, or one that names no byte
        return visible(str(error))
    return None


_cuda_marks = ("#include", "__global__", "__device__", "extern ", "template", "using namespace")


def _syntax_hint(file: str, content: bytes, text: str) -> str | None:
    """Return a hint on what the file is instead of Python, or None. text: the line of the error."""
    if text.startswith(("<<<<<<<", "=======", ">>>>>>>")):
        return "this is the mark of a merge conflict"
    if text.startswith("```"):
        return "this is a fence of Markdown: keep what stands between the fences"
    begins_as_cuda = content.decode("utf-8", "replace").lstrip().startswith(_cuda_marks)
    if begins_as_cuda or file.endswith((".cu", ".cuh", ".cpp")):
        return "this is CUDA C++: nvfp4 new cuda writes a submission with such a kernel inside"
    return None


def _raw_line(content: bytes, number: int | None) -> str:
    if number is None:
        return ""
    encoding = tokenize.detect_encoding(BytesIO(content).readline)[0]
    lines = content.decode(encoding).replace("\r\n", "\n").replace("\r", "\n").split("\n")
    return lines[number - 1] if number <= len(lines) else ""
