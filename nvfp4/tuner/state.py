"""Timings of a search kept in a file, so that an interrupted one goes on."""

from __future__ import annotations

import json
import math
import pathlib
from typing import Any

from nvfp4.records.whole_files import write_whole
from nvfp4.tuner.space import TuneError

_hint = "Name another file, or delete this one to begin anew."


class State:
    """Timings as {GPU: {kernel: {shape: {configuration: [microseconds]}}}} in JSON.

    kernel is a fingerprint of the submission without its table: timings of another kernel say
    nothing about this one.
    """

    def __init__(self, path: pathlib.Path | None, device: str, kernel: str) -> None:
        """Reads the file where there is one. Raises TuneError."""
        self.path = path
        self._all: dict[str, Any] = _read(path) if path and path.exists() else {}
        self._shapes = self._all.setdefault(device, {}).setdefault(kernel, {})
        self.save()

    def times(self, shape: tuple[int, int, int]) -> dict[str, list[float]]:
        """The timings of a shape, to be added to."""
        times: dict[str, list[float]] = self._shapes.setdefault(",".join(map(str, shape)), {})
        return times

    def save(self) -> None:
        """Writes all of it. Raises TuneError where the file cannot be written."""
        if self.path is None:
            return
        try:
            write_whole(self.path, json.dumps(self._all))
        except OSError as error:
            raise TuneError(f"cannot write {self.path}: {error.strerror}", _hint) from None


def _read(path: pathlib.Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        for kernels in content.values():
            for shapes in kernels.values():
                for times in shapes.values():
                    for samples in times.values():
                        if not all(0 < float(each) < math.inf for each in samples):
                            raise ValueError("a time is not positive")
    except (OSError, ValueError, TypeError, AttributeError, RecursionError) as error:
        why = " ".join(str(error).split())
        raise TuneError(
            f"{path} does not hold the timings of an earlier run: {why}", _hint
        ) from None
    assert isinstance(content, dict)
    return content
