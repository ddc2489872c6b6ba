"""What the judge writes of kernels that were rewritten for this GPU."""

import json
from typing import Any

from nvfp4.judge.protocol import ResultPipe

longest_bytes = 3000
"""Of the list, as JSON: the bot's pipe is small."""

_longest_name = 60
_most_opcodes = 12
_largest = 2**31


class RetargetedKernels:
    """Writes `device.retargeted` whenever there is more to tell."""

    def __init__(self, pipe: ResultPipe) -> None:
        self._pipe = pipe
        self._written = ""

    def note(self, launches: list[Any]) -> None:
        """launches: what the submission's process says of its kernels, which it may make up."""
        found = [kernel for kernel in map(_plain, launches) if kernel is not None]
        while len(json.dumps(found)) > longest_bytes:
            found.pop()
        text = json.dumps(found)
        if found and text != self._written:
            self._written = text
            self._pipe.write("device.retargeted", text, longest_bytes=longest_bytes + 100)


def _plain(report: Any) -> dict[str, Any] | None:
    """The known fields, each of its type; None for what is no report of a rewritten kernel."""
    if not isinstance(report, dict) or not isinstance(report.get("rewritten"), dict):
        return None
    plain: dict[str, Any] = {
        name: str(report.get(name))[:_longest_name] for name in ("kernel", "source", "target")
    }
    for name in ("instructions", "added"):
        plain[name] = _count(report.get(name))
    opcodes = list(report["rewritten"].items())[:_most_opcodes]
    plain["rewritten"] = {str(name)[:_longest_name]: _count(count) for name, count in opcodes}
    return plain


def _count(value: Any) -> int:
    return value if type(value) is int and abs(value) < _largest else 0
