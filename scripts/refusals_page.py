"""Writes the list of what is refused into docs/emulator.md, from the source.

python -m scripts.refusals_page

A refusal is an error whose class has `refusal`. Each place that raises one is found in the source,
with its message; capitals stand for what it is about.
"""

from __future__ import annotations

import ast
import functools
import importlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import nvfp4.retarget.errors
from nvfp4.cli.batch.lines import batch_codes
from nvfp4.cli.judging.unclear_policy import machine_limit, refusals, too_slow
from nvfp4.emulator.errors import EmulatorError
from nvfp4.records.launch_errors import CaptureError
from nvfp4.records.refusals import signs
from scripts.codes_page import code_of, subclasses
from scripts.markdown import line_of, table

root = Path(__file__).resolve().parent.parent
page_path = root / "docs" / "emulator.md"
begin, end = "<!-- what is refused -->", "<!-- end of what is refused -->"

_areas = {
    "emulator": "Kernels",
    "capture": "Launches and host code",
    "retarget": "Kernels that are rewritten for another GPU",
}
_in_one_line = ("PtxSyntaxError",)
"""Each is one row: its messages are those of a parser."""


@dataclass(frozen=True)
class Site:
    """A place that refuses. error: the class. message, hint: with capitals for what varies."""

    area: str
    path: str
    error: str
    message: str
    hint: str


def refusing_classes() -> dict[str, type[Exception]]:
    """The classes of our packages whose errors are refusals, by name."""
    bases = (CaptureError, EmulatorError, nvfp4.retarget.errors.RetargetError)
    found = (each for base in bases for each in (base, *subclasses(base)))
    return {each.__name__: each for each in found if getattr(each, "refusal", False)}


@functools.cache
def sites() -> tuple[Site, ...]:
    """Every place that refuses, in the order of the source; equal messages once."""
    found: dict[tuple[str, str], Site] = {}
    for area in _areas:
        for path in sorted((root / "nvfp4" / area).rglob("*.py")):
            for each in _Reader(area, path).sites():
                found.setdefault((area, each.message), each)
    return tuple(found.values())


class _Reader:
    """The places of one module."""

    def __init__(self, area: str, path: Path) -> None:
        self._area, self._path = area, path.relative_to(root).as_posix()
        self._tree = ast.parse(path.read_text(encoding="utf-8"))
        self._classes = refusing_classes()
        self._strings: dict[str, str] = {}

    def sites(self) -> Iterator[Site]:
        """In the order of the source."""
        for node in ast.walk(self._tree):
            if isinstance(node, ast.ClassDef) and node.name in self._classes:
                yield from self._own_message(node)
            if isinstance(node, ast.FunctionDef) and node.name not in _makers:
                self._strings, nodes = {}, list(_own_nodes(node))
                for each in nodes:
                    if isinstance(each, ast.Assign) and isinstance(each.targets[0], ast.Name):
                        self._strings[each.targets[0].id] = self._text(each.value)
                parameters = {each.arg for each in node.args.args}
                for each in nodes:
                    if isinstance(each, ast.Call):
                        yield from self._site(each, parameters)

    def _own_message(self, error: ast.ClassDef) -> Iterator[Site]:
        """Of a class that makes its message itself."""
        for call in ast.walk(error):
            if not isinstance(call, ast.Call) or _name(call.func) != "__init__":
                continue
            if call.args and isinstance(call.args[0], ast.JoinedStr):
                yield Site(self._area, self._path, error.name, self._text(call.args[0]), "")

    def _site(self, call: ast.Call, parameters: set[str]) -> Iterator[Site]:
        name, arguments = _name(call.func), call.args
        if name == "CudaError" and _name(arguments[0]) == "NOT_SUPPORTED":
            name, arguments = "UnsupportedCall", arguments[1:]
        if name == "fault" and arguments and _name(arguments[0]) in self._classes:
            name, arguments = _name(arguments[0]), arguments[1:]
        if not arguments or name in _in_one_line:
            return
        message = self._text(arguments[0])
        if name in _makers and self._area == "emulator":
            name, template = _makers[name]
            message = template.replace("{}", message)
        elif isinstance(arguments[0], ast.Name) and arguments[0].id in parameters:
            return  # those who call this say it
        if name in self._classes and message.strip(". "):
            hints = [each.value for each in call.keywords if each.arg == "hint"]
            hint = self._text(hints[0]) if hints else ""
            yield Site(self._area, self._path, name, message, "" if hint == "..." else hint)

    def _text(self, node: ast.expr) -> str:
        """A text as far as the source says it."""
        if isinstance(node, ast.Constant):
            return node.value if isinstance(node.value, str) else str(node.value)
        if isinstance(node, ast.JoinedStr):
            return "".join(map(self._text, node.values))
        if isinstance(node, ast.FormattedValue):
            return _capitals(node.value)
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
            return self._text(node.left) + self._text(node.right)
        if isinstance(node, ast.IfExp):
            return self._text(node.body)
        if isinstance(node, ast.Name):
            return self._strings.get(node.id) or self._constant(node.id)
        return "..."

    def _constant(self, name: str) -> str:
        module = importlib.import_module(f"{self._path.removesuffix('.py').replace('/', '.')}")
        value = getattr(module, name, None)
        return value if isinstance(value, str) else "..."


_makers = {
    "unsupported": ("UnsupportedInstruction", "{}"),
    "refuse": ("UnsupportedInstruction", "OPCODE is not emulated: {}"),
}
"""Methods of the emulator that make errors."""


def _own_nodes(function: ast.AST) -> Iterator[ast.AST]:
    """What is in a function and in no function within it."""
    for child in ast.iter_child_nodes(function):
        if not isinstance(child, ast.FunctionDef):
            yield child
            yield from _own_nodes(child)


def _name(node: ast.expr) -> str:
    if isinstance(node, ast.Name):
        return node.id
    return node.attr if isinstance(node, ast.Attribute) else ""


def _capitals(node: ast.expr) -> str:
    """What a message is about."""
    if isinstance(node, ast.Call):
        inner = [*node.args, node.func.value] if isinstance(node.func, ast.Attribute) else node.args
        node = inner[0] if inner else node.func
    if isinstance(node, ast.Subscript):
        node = node.value
    return (_name(node).strip("_") or "...").upper()


def kinds() -> Iterator[tuple[str, str, str]]:
    """Code of a failure, how the message of the case begins, what the last line says."""
    for code, refusal in refusals.items():
        yield f"`{code}`", refusal.words, refusal.way_out
    killed = "`process.killed` by SIGKILL, as where memory is short"
    yield killed, machine_limit.words, machine_limit.way_out
    for code in ("timeout.call", "timeout.import", "kernel.runaway_kernel"):
        yield f"`{code}`, if it need not be a hang", too_slow.words, too_slow.way_out
    yield "`timeout.mode`", "not judged: the time limit was reached", too_slow.way_out


def section() -> str:
    """The lines between the two marks."""
    lines = [table(("failure", "the case says", "the verdict says"), kinds())]
    for area, title in _areas.items():
        rows = ((_quoted(each.message), each.hint) for each in sites() if each.area == area)
        lines += [f"### {title}", table(("message", "hint"), rows)]
        for name in _in_one_line:
            error = refusing_classes()[name]
            if area in error.__module__:
                lines.append(f"`{code_of(error)}`: {line_of(error.__doc__)}")
    rows = ((f"`{each.code}`", each.says) for each in signs)
    lines += ["### What others raise", table(("failure", "where"), rows)]
    rows = ((f"`{code}`", meaning) for code, meaning in batch_codes.items())
    lines += ["### Files of a batch", table(("error", "when"), rows)]
    return "\n\n".join(lines)


def _quoted(text: str) -> str:
    """A code span: a message may look like Markdown."""
    fence = "``" if "`" in text else "`"
    return f"{fence}{text}{fence}"


def page() -> str:
    """docs/emulator.md as it should be."""
    before, _, rest = page_path.read_text(encoding="utf-8").partition(begin)
    _, _, after = rest.partition(end)
    return f"{before}{begin}\n\n{section()}\n\n{end}{after}"


if __name__ == "__main__":
    page_path.write_text(page(), encoding="utf-8")
