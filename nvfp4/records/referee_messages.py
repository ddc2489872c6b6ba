"""Requests of the judge to a referee's process and their answers."""

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Prepare:
    """Import the problem's files."""

    cases: list[dict[str, Any]]
    """All cases that will be asked for; each must be valid."""


@dataclass(frozen=True)
class Prepared:
    """Figures of each case; see ``contract.referee.Published``."""

    least_bytes: list[int]
    figures: list[dict[str, float]]


@dataclass(frozen=True)
class Draw:
    """Draw the inputs of a case and compute the expected output."""

    arguments: dict[str, Any]
    full_range: bool
    number: int
    """Identifies the draw in later requests."""


@dataclass(frozen=True)
class CaseDrawn:
    """The drawn case."""

    inputs: dict[str, Any]
    """Tree of the inputs."""
    expected: dict[str, Any]
    """Tree of the expected output."""
    checks_shape: bool
    outputs: list[int]
    """Storages that the reference writes to, or that are uninitialised."""
    noise: list[int]
    """Those of `outputs` whose contents do not matter."""


@dataclass(frozen=True)
class Put:
    """Copy inputs into the buffers whose descriptor is sent along."""

    number: int
    host: bool
    """Whether to copy only to the buffers in host memory."""


@dataclass(frozen=True)
class Check:
    """Check an output whose packed storages are in memory that is sent along."""

    number: int
    output: dict[str, Any]
    nbytes: int
    noise: int
    """See ``contract.referee.Output``."""


@dataclass(frozen=True)
class OutputChecked:
    """The result of a check; see ``contract.referee.Checked``."""

    passed: bool
    message: str
    wrong: int
    elements: int
    error_share: float
    unclear: bool
