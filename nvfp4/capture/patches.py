"""Attributes of other packages, replaced while launches are captured."""

import os
import re
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

from nvfp4.records.launch_errors import CaptureError


class UnsupportedVersion(CaptureError, ImportError):
    """The installed version of a package cannot be intercepted."""

    refusal = True


def version_numbers(version: str) -> tuple[int, ...]:
    """Return the first three numbers of a version, for comparison."""
    return tuple(int(part) for part in re.findall(r"\d+", version)[:3])


class Patches:
    """Replaced attributes and environment variables; `undo` puts them back."""

    def __init__(self) -> None:
        self._originals = ExitStack()
        self._overridden: list[tuple[type, str]] = []

    def set(self, owner: Any, name: str, value: Any) -> None:
        """Set `owner.name`; `undo` deletes it again if only a base class had it."""
        if name in vars(owner):
            self._originals.callback(setattr, owner, name, vars(owner)[name])
        else:
            self._originals.callback(delattr, owner, name)
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
        if (owner, name) not in self._overridden:
            self._overridden.append((owner, name))
            self.set(owner, name, make(getattr(owner, name)))

    def set_variable(self, name: str, value: str) -> None:
        """Set an environment variable."""
        if name in os.environ:
            self._originals.callback(os.environ.update, {name: os.environ[name]})
        else:
            self._originals.callback(os.environ.pop, name, None)
        os.environ[name] = value

    def undo(self) -> None:
        """Put everything back, last first."""
        self._overridden.clear()
        self._originals.close()
