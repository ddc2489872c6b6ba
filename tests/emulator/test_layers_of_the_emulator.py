"""The folders of the emulator have an order, and no module imports itself by a detour."""

from __future__ import annotations

import ast
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2] / "nvfp4" / "emulator"
PACKAGE = "nvfp4.emulator"
# A folder or module may import its own and what stands before it.
ORDER = (
    "source",
    "names",
    "errors",
    "findings",
    "report",
    "cost",
    "loops",
    "ptx",
    "arithmetic",
    "state",
    "instructions",
    "compiler",
    "execution",
    "listing",
    "rendering",
    "",
    "preparation",
)


def name_of(path: Path, root: Path) -> str:
    """The dotted name of a file below the package; "" is the package itself."""
    parts = path.relative_to(root).with_suffix("").parts
    return ".".join(part for part in parts if part != "__init__")


def imports(path: Path, root: Path, modules: set[str]) -> set[str]:
    """Modules of the package that a file imports anywhere in it: in functions, in
    `if TYPE_CHECKING`, relatively or not."""
    name = name_of(path, root)
    folder = name.split(".") if path.name == "__init__.py" else name.split(".")[:-1]
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            wanted: list[tuple[str, str | None]] = [(alias.name, None) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                up = folder[: len(folder) - node.level + 1]
                base = ".".join([PACKAGE, *up, *([base] if base else [])]).replace("..", ".")
            wanted = [(base, alias.name) for alias in node.names]
        else:
            continue
        for module, item in wanted:
            if module != PACKAGE and not module.startswith(PACKAGE + "."):
                continue
            inner = module[len(PACKAGE) + 1 :]
            # `from package import module` imports the module, not the package's own names.
            whole = f"{inner}.{item}".strip(".")
            found.add(whole if item is not None and whole in modules else inner)
    return found


def graph_of(root: Path) -> dict[str, set[str]]:
    paths = sorted(root.rglob("*.py"))
    modules = {name_of(path, root) for path in paths}
    return {name_of(path, root): imports(path, root, modules) for path in paths}


def test_every_import_goes_down() -> None:
    for module, wanted in graph_of(ROOT).items():
        for other in wanted:
            place, below = (ORDER.index(name.split(".")[0]) for name in (module, other))
            assert below <= place, f"{module or 'the package'} imports {other}"


def test_no_module_imports_itself_by_a_detour() -> None:
    graph = graph_of(ROOT)
    assert len(list(TopologicalSorter(graph).static_order())) == len(graph)


@pytest.mark.parametrize(
    "back",
    [
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from nvfp4.emulator.a import x\n",
        "def late():\n    import nvfp4.emulator.a\n",
        "from . import a\n",
        "from .a import x\n",
    ],
)
def test_a_circle_is_found_wherever_it_hides(tmp_path: Path, back: str) -> None:
    (tmp_path / "a.py").write_text("from nvfp4.emulator.b import y\n")
    (tmp_path / "b.py").write_text(back)
    with pytest.raises(CycleError):
        list(TopologicalSorter(graph_of(tmp_path)).static_order())


def test_modules_are_short() -> None:
    for path in ROOT.rglob("*.py"):
        assert len(path.read_text(encoding="utf-8").splitlines()) <= 400, path
