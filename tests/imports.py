"""Imports read from the source: who names whom, anywhere in a file."""

import ast
from functools import cache
from pathlib import Path

from bot import root


def modules() -> dict[str, Path]:
    """Every module of the product by the name under which others import it."""
    found = {path.stem: path for path in root.glob("*.py")}
    package = root / "nvfp4"
    others = {package / name for name in ("selftest", "ladder")}
    others.add(package / "problems" / "nvfp4_gemv" / "eval.py")  # a script
    for path in sorted(package.rglob("*.py")):
        if not others & {path, *path.parents}:
            parts = path.relative_to(root).with_suffix("").parts
            found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def packages_of(text: str) -> set[str]:
    """The top-level packages that a text imports, anywhere in it; "" for a relative import."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            names |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names.add("" if node.level else (node.module or "").partition(".")[0])
    return names


@cache
def imports_of(path: Path) -> set[str]:
    """Full dotted names of all that a file imports, in functions and under TYPE_CHECKING too."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, f"{path} has a relative import"
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return found


@cache
def graph() -> dict[str, set[str]]:
    """Module to the modules of this repository that it imports."""
    known = modules()
    return {
        name: {_module(each, known) for each in imports_of(path)} - {""}
        for name, path in known.items()
    }


def _module(name: str, known: dict[str, Path]) -> str:
    """The module that an imported name is, or lies in; empty where it is none of ours."""
    while name and name not in known:
        name = name.rpartition(".")[0]
    return name
