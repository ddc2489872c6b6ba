"""Attributes of modules and classes that are replaced for a while."""

from __future__ import annotations

from typing import Any

_missing = object()


class Patches:
    """Replaced attributes; `undo` puts them back."""

    def __init__(self) -> None:
        self._replaced: list[tuple[Any, str, Any]] = []

    def set(self, owner: Any, name: str, value: Any) -> None:
        """Set `owner.name`; what only a base class has is deleted again by `undo`."""
        self._replaced.append((owner, name, vars(owner).get(name, _missing)))
        setattr(owner, name, value)

    def undo(self) -> None:
        """Put everything back, last first."""
        for owner, name, original in reversed(self._replaced):
            if original is _missing:
                delattr(owner, name)
            else:
                setattr(owner, name, original)
        self._replaced.clear()
