"""Why a case failed, for programs: a code, a place, arguments."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import PurePath
from typing import Any

from nvfp4.cli.codes import code_of, unknown
from nvfp4.cli.findings import read_places
from nvfp4.cli.text import visible_json

_texts = ("code", "message", "kernel", "file", "hint", "rule")
_numbers = ("line", "column", "ptx_line")
_triples = ("cta", "thread")
keys = (*_texts, *_numbers, *_triples, "arguments", "causes", "related")

_longest_text = 300
_longest_name = 60
_most_arguments = 16
_most_causes = 4
_largest = 2**53
_code = re.compile(r"[a-z][a-z0-9_]*(\.[a-z0-9_]+)*")
_frame = re.compile(r'^  File "([^"\n]+)", line (\d+)', re.MULTILINE)


def read_failure(
    message: str,
    record: str | None = None,
    cause: str | None = None,
    findings: Sequence[dict[str, Any]] = (),
) -> dict[str, Any]:
    """The failure of a case with every key, None where something is not known.

    message: the judge's words. record, cause: JSON that may come from the submission's process, and
    counts before the words where there is one; what is not as it should be is left out. findings:
    of the case.
    """
    code, arguments = code_of(message)
    failure: dict[str, Any] = dict.fromkeys(keys)
    failure |= {"code": code, "message": message.partition("\n")[0], "arguments": arguments}
    failure["related"] = []
    if code == unknown:
        failure |= _of_a_traceback(message)
    told = _read_json(record)
    if isinstance(told, dict) and _is_code(told.get("code")):
        failure |= _believed(told)
    elif code == "finding.strict" and findings:
        place = ("kernel", "file", "line", "cta", "thread", "hint", "rule")
        failure |= {name: findings[0].get(name) for name in (*place, "related")}
        failure["arguments"] = {"finding": findings[0]["code"]}
    failure["message"] = failure["message"][:_longest_text]
    failure["causes"] = _causes(cause)
    return failure


def _causes(text: str | None) -> list[dict[str, Any]]:
    """Why an output is wrong: an object with a code, or a list of them. One may hold others, in
    "and" such as explain other elements, in "or" such as explain the same ones as well.
    """
    value = _read_json(text)
    found = []
    for each in _list(value) or [value]:
        found += [each, *_list(each.get("and"))] if isinstance(each, dict) else []
    causes = []
    for each in filter(_is_cause, found[:_most_causes]):
        others = [_cause(other) for other in filter(_is_cause, _list(each.get("or")))]
        causes.append({**_cause(each), "or": others[:_most_causes]})
    return causes


def _is_cause(value: object) -> bool:
    return isinstance(value, dict) and _is_code(value.get("code"))


def _cause(value: dict[str, Any]) -> dict[str, Any]:
    known = {name: each for name, each in value.items() if name not in ("or", "and", "code")}
    return {"code": value["code"], **_arguments(known)}


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


def _believed(told: dict[str, Any]) -> dict[str, Any]:
    """What a record says, each value of its type."""
    found: dict[str, Any] = {"arguments": _arguments(told.get("arguments"))}
    found["related"] = read_places(told.get("related"))
    for name in _texts:
        if isinstance(told.get(name), str) and told[name]:
            found[name] = told[name][:_longest_text]
    for name in _numbers:
        if _is_number(told.get(name)) and type(told[name]) is int and told[name] >= 0:
            found[name] = told[name]
    for name in _triples:
        if _is_list(told.get(name)) and len(told[name]) == 3:
            found[name] = told[name]
    return found


def _of_a_traceback(message: str) -> dict[str, Any]:
    """Where a traceback without a record ends: the submission's innermost line, the error."""
    frames = _frame.findall(message)
    if not frames:
        return {}
    file, line = frames[-1]
    said = [each for each in message.splitlines() if each and not each.startswith(" ")]
    found = {"code": "call.exception", "file": PurePath(file).name, "message": said[-1]}
    return {**found, "line": int(line) if len(line) < 16 else None}


def _read_json(text: str | None) -> Any:
    try:
        return visible_json(text) if text else None
    except (ValueError, RecursionError):
        return None


def _arguments(values: object) -> dict[str, Any]:
    """Texts, numbers, flags, and lists of whole numbers by their names."""
    if not isinstance(values, dict):
        return {}
    found = {}
    for name, value in list(values.items())[:_most_arguments]:
        if isinstance(value, str):
            found[name[:_longest_name]] = value[:_longest_text]
        elif isinstance(value, bool) or _is_number(value) or _is_list(value):
            found[name[:_longest_name]] = value
    return found


def _is_code(value: object) -> bool:
    return isinstance(value, str) and len(value) <= _longest_name and bool(_code.fullmatch(value))


def _is_number(value: object) -> bool:
    return type(value) in (int, float) and abs(value) < _largest  # type: ignore[arg-type]


def _is_list(value: object) -> bool:
    return (
        isinstance(value, list)
        and len(value) <= _most_arguments
        and all(type(each) is int and abs(each) < _largest for each in value)
    )
