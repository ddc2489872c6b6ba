"""Attributes of modules and classes that are replaced for a while."""

from __future__ import annotations

import os
from typing import Any

_missing = object()


class Patches:
    """Replaced attributes; `undo` puts them back."""

    def __init__(self) -> None:
        self._replaced: list[tuple[Any, str, Any]] = []
        self._variables: dict[str, str | None] = {}

    def set(self, owner: Any, name: str, value: Any) -> None:
        """Set `owner.name`; what only a base class has is deleted again by `undo`."""
        self._replaced.append((owner, name, vars(owner).get(name, _missing)))
        setattr(owner, name, value)

    def set_variable(self, name: str, value: str) -> None:
        """Set an environment variable."""
        self._variables.setdefault(name, os.environ.get(name))
        os.environ[name] = value

    def undo(self) -> None:
        """Put everything back, last first."""
        for owner, name, original in reversed(self._replaced):
            if original is _missing:
                delattr(owner, name)
            else:
                setattr(owner, name, original)
        self._replaced.clear()
        for name, value in self._variables.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
        self._variables.clear()
