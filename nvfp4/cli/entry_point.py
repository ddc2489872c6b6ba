"""What is surely wrong with a submission's custom_kernel, read from its source.

Code binds names in many ways. Whatever might bind custom_kernel, or bind it anew, is left to the
import: nothing that would work is refused.
"""

from __future__ import annotations

import ast
import difflib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeGuard

entry_point = "custom_kernel"

_usual_names = ("kernel", "solve", "solution", "gemv", "run", "main", "forward")
"""What others call it."""

_reflection = {
    *("__builtins__", "__code__", "__defaults__", "__dict__", "__getattr__", "__globals__"),
    *("__import__", "__kwdefaults__", "builtins", "cloudpickle", "ctypes", "dill", "eval", "exec"),
    *("f_globals", "f_locals", "gc", "getattr", "globals", "import_module", "importlib", "inspect"),
    *("locals", "marshal", "modules", "operator", "pickle", "runpy", "setattr", "vars"),
}
"""Names with which code can bind others that do not stand in the source."""

_endings = ("_exit", "abort", "exit", "kill")

_scopes = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)
_functions = (ast.FunctionDef, ast.AsyncFunctionDef)


@dataclass(frozen=True)
class EntryPointMistake:
    """line: from 1, or None for the file as a whole. hint: what to do, if there is a guess."""

    message: str
    line: int | None
    hint: str | None


def entry_point_mistake(tree: ast.Module) -> EntryPointMistake | None:
    """Why calling custom_kernel surely fails; None where it may work."""
    if _may_bind_unseen(tree):
        return None
    bindings = [node for node in ast.walk(tree) if _binds(node)]
    if any(not isinstance(node, _functions) for node in bindings):
        return None
    if not any(node in bindings for node in tree.body):
        if not bindings:
            return _missing(tree)
        misplaced = list(_misplaced(tree))
        return misplaced[0] if len(misplaced) == len(bindings) else None
    definition = bindings[0]
    if len(bindings) > 1 or not isinstance(definition, _functions) or definition.decorator_list:
        return None
    return _wrong_function(definition)


def _may_bind_unseen(tree: ast.Module) -> bool:
    """Whether the source has means to bind a name that it does not show."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and (node.id in _reflection or _is_stored_name(node)):
            return True
        if isinstance(node, ast.Attribute) and node.attr in (*_reflection, entry_point):
            return True
        if isinstance(node, _functions) and node.name in _reflection:
            return True
        if isinstance(node, ast.Import) and any(
            not _reflection.isdisjoint(alias.name.split(".")) for alias in node.names
        ):
            return True
        if isinstance(node, ast.ImportFrom):
            named = {*(node.module or "").split("."), *(alias.name for alias in node.names)}
            if "*" in named or not _reflection.isdisjoint(named):
                return True
    documentation = {id(text) for text in _docstrings(tree)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and id(node) not in documentation:
            text = node.value.decode("latin-1") if isinstance(node.value, bytes) else node.value
            if isinstance(text, str) and entry_point in text:
                return True
    return False


def _is_stored_name(node: ast.Name) -> bool:
    return node.id == "__name__" and not isinstance(node.ctx, ast.Load)


def _docstrings(tree: ast.Module) -> Iterator[ast.Constant]:
    """Strings that are statements: nobody reads them."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            yield node.value


def _binds(node: ast.AST) -> bool:
    if isinstance(node, (*_functions, ast.ClassDef)):
        return node.name == entry_point
    if isinstance(node, ast.Name):
        return node.id == entry_point and not isinstance(node.ctx, ast.Load)
    if isinstance(node, ast.alias):
        return (node.asname or node.name.partition(".")[0]) == entry_point
    if isinstance(node, (ast.Global, ast.Nonlocal)):
        return entry_point in node.names
    # A name after "except ... as" or in a pattern of "match" is a plain string.
    return entry_point in (getattr(node, "name", None), getattr(node, "rest", None))


def _runs_as_a_program(node: ast.AST) -> TypeGuard[ast.If]:
    """Whether it is ``if __name__ == "__main__":``, which the judge's import passes by."""
    return isinstance(node, ast.If) and ast.unparse(node.test) == "__name__ == '__main__'"


def _missing(tree: ast.Module) -> EntryPointMistake:
    """No name custom_kernel: what it may be called instead."""
    said = f"it defines no function {entry_point}(data)"
    functions = [node for node in tree.body if isinstance(node, _functions)]
    near = nearest([node.name for node in functions])
    if near is not None:
        found = next(node for node in functions if node.name == near)
        return EntryPointMistake(
            said, found.lineno, f"did you mean {entry_point}? It is called {near} here"
        )
    return EntryPointMistake(said, None, f"the judge calls {entry_point}(data) and takes c from it")


def _misplaced(tree: ast.Module) -> Iterator[EntryPointMistake]:
    """Functions of that name in a class, in another function, or where only a program runs."""
    for outer in ast.walk(tree):
        if not isinstance(outer, (*_functions, ast.ClassDef)) and not _runs_as_a_program(outer):
            continue
        for node in filter(_binds, outer.body):
            if isinstance(outer, ast.ClassDef):
                what = f"a method of class {outer.name}"
                do = f"write {entry_point} = {outer.name}().{entry_point} below the class"
            elif isinstance(outer, _functions):
                what, do = f"inside the function {outer.name}", "move it out of there"
            else:
                message = f'{entry_point} is defined only under if __name__ == "__main__"'
                do = "the judge imports the file: move it out"
                yield EntryPointMistake(message, outer.lineno, do)
                continue
            message = f"{entry_point} is {what}, and the judge looks for it in the module"
            yield EntryPointMistake(message, node.lineno, do)


def nearest(names: list[str]) -> str | None:
    """The name that was probably meant to be custom_kernel, if there is one."""
    folded = {name.lower().replace("_", ""): name for name in reversed(names)}
    wanted = entry_point.replace("_", "")
    if close := difflib.get_close_matches(wanted, folded, n=1, cutoff=0.75):
        return folded[close[0]]
    usual = [name for name in names if name.lower() in _usual_names]
    return usual[0] if usual else None


def _wrong_function(function: ast.FunctionDef | ast.AsyncFunctionDef) -> EntryPointMistake | None:
    """The only binding of the name, a plain function of the module."""
    line = function.lineno
    if isinstance(function, ast.AsyncFunctionDef):
        return EntryPointMistake(
            f"{entry_point} is async, and nobody awaits what it returns", line, "remove async"
        )
    arguments = function.args
    positional = [*arguments.posonlyargs, *arguments.args]
    required = len(positional) - len(arguments.defaults)
    only_by_name = [
        each.arg
        for each, default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)
        if default is None
    ]
    takes = None
    if required > 1:
        takes = f"{required} arguments"
    elif not positional and arguments.vararg is None:
        takes = "no argument"
    elif only_by_name:
        takes = f"{', '.join(only_by_name)} by name"
    if takes is not None:
        return EntryPointMistake(
            f"{entry_point} takes {takes}, and the judge calls it with one",
            line,
            "write def custom_kernel(data): and a, b, sfa, sfb, sfa_permuted, sfb_permuted, c = "
            "data",
        )
    own = list(_own_nodes(function))
    if any(isinstance(node, (ast.Yield, ast.YieldFrom)) for node in own):
        return EntryPointMistake(
            f"{entry_point} has a yield: calling it runs nothing", line, "return c instead"
        )
    if not any(map(_ends_otherwise, own)):
        return EntryPointMistake(f"{entry_point} returns nothing", line, "end it with: return c")
    return None


def _ends_otherwise(node: ast.AST) -> bool:
    """Whether a function with this node may end but by falling off its end."""
    if isinstance(node, ast.Return):
        return node.value is not None
    if isinstance(node, ast.While):
        return isinstance(node.test, ast.Constant)
    if isinstance(node, (ast.Name, ast.Attribute)):
        return (node.id if isinstance(node, ast.Name) else node.attr) in _endings
    return isinstance(node, ast.Raise)


def _own_nodes(function: ast.FunctionDef) -> Iterator[ast.AST]:
    """Nodes of a function's body, without those of functions inside."""
    waiting: list[ast.AST] = list(function.body)
    while waiting:
        node = waiting.pop()
        yield node
        if not isinstance(node, _scopes):
            waiting += ast.iter_child_nodes(node)
