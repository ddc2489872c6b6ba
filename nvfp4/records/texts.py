"""Messages of a submission's process as people read them."""

import re
from pathlib import Path

longest_bytes = 2800
"""Of a message: the judge keeps 3,000 bytes."""

_escapes = re.compile(r"\x1b(?:\[[0-9;?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_])")
_object_address = re.compile(r" at 0x[0-9a-fA-F]{6,}\b")
_address = re.compile(r"\b0x[0-9a-fA-F]{9,}\b")
_temporary = re.compile(r"(?:/var)?/tmp/[^\s'\":,()<>]*/|(?:/var)?/tmp/(?=[^\s'\":,()<>/]+\.\w+)")


def plain(text: str, submission: Path, name: str) -> str:
    """Without escape sequences, scratch folders and addresses, which differ from run to run."""
    text = _escapes.sub("", text)
    text = text.replace(str(submission), name).replace(f"{submission.parent}/", "")
    text = re.sub(rf"\b{re.escape(submission.name)}\b", name, text)
    text = _temporary.sub("", text)
    return _address.sub("0x...", _object_address.sub("", text))


def cut(text: str) -> str:
    """The text; of a long one the beginning and the end."""
    encoded = text.encode(errors="backslashreplace")
    if len(encoded) <= longest_bytes:
        return text
    head, tail = encoded[: longest_bytes * 2 // 3], encoded[-longest_bytes // 3 :]
    first = head.decode(errors="ignore").rpartition("\n")[0]
    last = tail.decode(errors="ignore").partition("\n")[2]
    return f"{first}\n... (cut)\n{last}"
