"""What deserves a word though the leaderboard would take it: as records for the verdict."""

import json
from pathlib import Path
from typing import Any

import torch

from nvfp4.judge.opened_case import OpenedCase
from nvfp4.records.messages import Called
from nvfp4.records.plain_values import other_places, whole_number, whole_numbers

longest_bytes = 2600
"""Of the findings of a case, as JSON: the bot's pipe is small."""

_longest_text = 300

_texts = ("code", "message", "kernel", "file", "hint", "rule")
_fields = (*_texts, "line", "cta", "thread", "count", "related")


def findings_of(opened: OpenedCase, called: Called) -> list[dict[str, Any]]:
    """The findings of a judged call: those of its launches, and what only our own check refuses.

    Launches are reported by the submission's process: anything that is not a finding is left out.
    """
    found = [*_of_output(opened), *_of_launches(called.launches)]
    while len(json.dumps(found)) > longest_bytes:
        found.pop()
    return found


def _of_output(opened: OpenedCase) -> list[dict[str, Any]]:
    found = []
    if opened.output_dtype != torch.float16:
        name = str(opened.output_dtype).removeprefix("torch.")
        found.append(
            _finding(
                "output_dtype",
                f"custom_kernel returned {name}, which the contest takes for float16",
                "return c",
            )
        )
    if opened.error_share > 1:
        found.append(
            _finding(
                "tolerance",
                f"the largest error is {opened.error_share:.3f} times the allowed one; the "
                "contest's check rounds to float16 and takes it",
                "add in float32: other inputs will be over the limit",
            )
        )
    return found


def _finding(code: str, message: str, hint: str) -> dict[str, Any]:
    return {
        **dict.fromkeys(_fields),
        "code": code,
        "message": message,
        "count": 1,
        "hint": hint,
        "related": [],
    }


def _of_launches(launches: list[Any]) -> list[dict[str, Any]]:
    found = []
    for report in launches:
        listed = report.get("findings") if isinstance(report, dict) else None
        for each in listed if isinstance(listed, list) else ():
            if isinstance(each, dict):
                found.append(_plain(each))
    return found


def _plain(finding: dict[Any, Any]) -> dict[str, Any]:
    """The known fields, each of its type or None; text is cut."""
    texts = {name: finding.get(name) for name in _texts}
    plain: dict[str, Any] = {
        name: text[:_longest_text] if isinstance(text, str) else None
        for name, text in texts.items()
    }
    if plain["file"]:
        plain["file"] = Path(plain["file"]).name
    for name in ("line", "count"):
        plain[name] = whole_number(finding.get(name))
    for name in ("cta", "thread"):
        plain[name] = whole_numbers(finding.get(name))
    plain["related"] = other_places(finding.get("related"), _longest_text)
    return {name: plain[name] for name in _fields}
