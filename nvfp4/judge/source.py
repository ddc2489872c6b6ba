"""The bytes of a submission, read once: its process may replace every copy that it can write to."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

_longest_quoted = 128 << 10


@dataclass(frozen=True)
class Source:
    """file: its name."""

    file: str
    content: bytes

    @classmethod
    def read(cls, path: Path) -> Source:
        """Raises OSError."""
        return cls(path.name, path.read_bytes())

    @property
    def text(self) -> str:
        """What messages quote lines of: the beginning of a long file."""
        return self.content[:_longest_quoted].decode("utf-8", "replace")
