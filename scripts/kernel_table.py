"""Reading and changing the table of configurations in a submission's source."""

from __future__ import annotations

import ast


def _tables(source: str) -> ast.Dict:
    """The dict that the submission assigns to `tables`. Raises ValueError without one."""
    for node in ast.parse(source).body:
        if not (isinstance(node, ast.Assign) and isinstance(node.value, ast.Dict)):
            continue
        if any(isinstance(target, ast.Name) and target.id == "tables" for target in node.targets):
            return node.value
    raise ValueError("the submission has no table to write to: it must assign a dict to `tables`")


def with_entry(source: str, table: int, shape: tuple[int, int, int], fields: list[int]) -> str:
    """The source with the configuration of one shape in one table replaced or added; every other
    line stays as it is.

    Raises ValueError where the source has no such table.
    """
    entry = f"{shape!r}: Configuration({', '.join(map(str, fields))}),"
    tables = _tables(source)
    for key, value in zip(tables.keys, tables.values, strict=True):
        if not (isinstance(key, ast.Constant) and key.value == table):
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
