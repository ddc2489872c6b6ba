"""Attributes of other packages, replaced while launches are captured."""

import os
import re
from collections.abc import Callable
from typing import Any

from nvfp4.records.launch_errors import CaptureError

_missing = object()


class UnsupportedVersion(CaptureError, ImportError):
    """The installed version of a package cannot be intercepted."""

    refusal = True


def version_numbers(version: str) -> tuple[int, ...]:
    """Return the first three numbers of a version, for comparison."""
    return tuple(int(part) for part in re.findall(r"\d+", version)[:3])


class Patches:
    """Replaced attributes and environment variables; `undo` puts them back."""

    def __init__(self) -> None:
        self._replaced: list[tuple[Any, str, Any]] = []
        self._variables: dict[str, str | None] = {}

    def set(self, owner: Any, name: str, value: Any) -> None:
        """Set `owner.name`; `undo` deletes it again if only a base class had it."""
        self._replaced.append((owner, name, vars(owner).get(name, _missing)))
        setattr(owner, name, value)

    def replace(self, owner: Any, name: str, make: Callable[[Any], Any]) -> None:
        """Set `owner.name` to `make(original)`. Raises AttributeError if it has none of its own."""
        if name not in vars(owner):
            owner_name = getattr(owner, "__name__", type(owner).__name__)
            raise AttributeError(f"{owner_name} has no {name}")
        self.set(owner, name, make(vars(owner)[name]))

    def override(self, owner: type, name: str, make: Callable[[Any], Any]) -> None:
        """Set `owner.name`, which may be inherited, to `make(original)`, unless that was done
        before."""
        if not any(each is owner and held == name for each, held, _ in self._replaced):
            self.set(owner, name, make(getattr(owner, name)))

    def set_variable(self, name: str, value: str) -> None:
        """Set an environment variable."""
        self._variables.setdefault(name, os.environ.get(name))
        os.environ[name] = value

    def undo(self) -> None:
        """Put everything back, last first."""
        while self._replaced:
            owner, name, original = self._replaced.pop()
            if original is _missing:
                delattr(owner, name)
            else:
                setattr(owner, name, original)
        for name, value in self._variables.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
        self._variables.clear()
