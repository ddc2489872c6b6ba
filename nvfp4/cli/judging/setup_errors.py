"""How a command ends that could not judge: in words, or as an object for programs."""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import pairwise

import click

from nvfp4.cli.errors import SetupError


def asks_for_json(arguments: Sequence[str]) -> bool:
    """Whether a command line asks for JSON on stdout, be it right otherwise or not."""
    given = {"--json", "--format=json"} & set(arguments)
    return bool(given) or ("--format", "json") in pairwise(arguments)


def print_error(error: SetupError | click.UsageError, as_json: bool) -> None:
    """The documented object on stdout, or a sentence on stderr. Raises a wrong usage again, which
    click shows, unless it is to be JSON.
    """
    if not as_json:
        if isinstance(error, click.UsageError):
            raise error
        click.echo(f"error: {error}\nhint: {error.hint}", err=True)
        return
    from nvfp4.cli.verdict import error_object

    if isinstance(error, click.UsageError):
        content = error_object("usage", error.format_message())
    else:
        content = error_object(error.code, str(error), error.hint)
    click.echo(json.dumps(content, indent=2))
