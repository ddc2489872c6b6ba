"""Requests of the judge to a referee's process and their answers."""

from typing import Any

from nvfp4.records.base import Record


class Prepare(Record):
    """Import the problem's files."""

    cases: list[dict[str, Any]]
    """All cases that will be asked for; each must be valid."""


class Prepared(Record):
    """Figures of each case; see ``contract.referee.Published``."""

    least_bytes: list[int]
    figures: list[dict[str, float]]


class Draw(Record):
    """Draw the inputs of a case and compute the expected output."""

    arguments: dict[str, Any]
    full_range: bool
    number: int
    """Identifies the draw in later requests."""


class CaseDrawn(Record):
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


class Put(Record):
    """Copy inputs into the buffers whose descriptor is sent along."""

    number: int
    host: bool
    """Whether to copy only to the buffers in host memory."""


class Check(Record):
    """Check an output whose packed storages are in memory that is sent along."""

    number: int
    output: dict[str, Any]
    nbytes: int
    noise: int
    """See ``contract.referee.Output``."""


class OutputChecked(Record):
    """The result of a check; see ``contract.referee.Checked``."""

    passed: bool
    message: str
    unclear: bool
