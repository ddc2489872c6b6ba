"""Reading and changing the table of configurations in a submission's source."""

import ast
import dataclasses
from typing import Any, NamedTuple

from nvfp4.tuner.space import Key


class Choice(NamedTuple):
    """What a search says of a shape. lines: of its ranking, for people. name, configuration: of the
    best. better: whether the table should have it."""

    lines: list[str]
    name: str
    configuration: Any
    better: bool = True


def _is_tables(node: ast.stmt) -> bool:
    targets = node.targets if isinstance(node, ast.Assign) else []
    if isinstance(node, ast.AnnAssign):
        targets = [node.target]
    return any(isinstance(target, ast.Name) and target.id == "tables" for target in targets)


def _tables(source: str) -> ast.Dict:
    """The dict that the submission assigns to `tables`. Raises ValueError without one."""
    for node in ast.parse(source).body:
        value = node.value if isinstance(node, (ast.Assign, ast.AnnAssign)) else None
        if _is_tables(node) and isinstance(value, ast.Dict):
            return value
    raise ValueError("the submission has no table to write to: it must assign a dict to `tables`")


def _is_key(node: ast.expr | None, table: Key) -> bool:
    return node is not None and ast.dump(node) == ast.dump(ast.parse(repr(table), mode="eval").body)


def _others(source: str, table: Key, shape: tuple[int, int, int]) -> list[str]:
    """Everything of a source but one entry, in order, as Python understands it."""
    tree = ast.parse(source)
    own = ast.dump(ast.parse(repr(shape), mode="eval").body)
    for node in ast.walk(tree):
        if not isinstance(node, ast.Dict):
            continue
        for key, value in zip(node.keys, node.values, strict=True):
            if _is_key(key, table) and isinstance(value, ast.Dict):
                kept = [
                    (at, each)
                    for at, each in zip(value.keys, value.values, strict=True)
                    if at is None or ast.dump(at) != own
                ]
                value.keys, value.values = [at for at, _ in kept], [each for _, each in kept]
    return [ast.dump(node) for node in tree.body]


def with_entry(source: str, table: Key, shape: tuple[int, int, int], configuration: Any) -> str:
    """The source with the configuration of one shape in one table replaced or added; every other
    line stays as it is.

    configuration: an instance of a dataclass of the submission. Raises ValueError where the source
    has no such table, or one whose entries do not stand on lines of their own.
    """
    changed = _with_line(source, table, shape, configuration)
    try:
        same = _others(changed, table, shape) == _others(source, table, shape)
    except SyntaxError:
        same = False
    if not same:
        raise ValueError(
            f"every entry of table {table} must stand on lines of its own and end with a comma"
        )
    return changed


def _with_line(source: str, table: Key, shape: tuple[int, int, int], configuration: Any) -> str:
    fields = dataclasses.astuple(configuration) if configuration is not None else ()
    entry = f"{shape!r}: {type(configuration).__name__}({', '.join(map(repr, fields))}),"
    tables = _tables(source)
    for key, value in zip(tables.keys, tables.values, strict=True):
        if not _is_key(key, table):
            continue
        if not isinstance(value, ast.Dict):
            break
        lines = source.splitlines(keepends=True)
        for at, old in zip(value.keys, value.values, strict=True):
            if at is not None and ast.literal_eval(at) == shape:
                lines[at.lineno - 1 : old.end_lineno] = [" " * at.col_offset + entry + "\n"]
                return "".join(lines)
        assert value.end_lineno is not None and value.end_col_offset is not None
        # A line of its own before the closing brace.
        last, brace = value.end_lineno - 1, value.end_col_offset - 1
        head, tail = lines[last][:brace], lines[last][brace:]
        if head.strip():
            raise ValueError(f"the closing brace of table {table} must stand on a line of its own")
        lines[last : last + 1] = [f"{head}    {entry}\n", head + tail]
        return "".join(lines)
    raise ValueError(f"the submission has no table {table}")
