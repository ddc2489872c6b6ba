"""What keeps a command from judging, whatever the submission does; how commands end."""

import json
from typing import Any

import click

json_schema = 3
"""Version of the JSON object; docs/verdict.schema.json describes it."""


class SetupError(Exception):
    """Nothing was judged: one sentence says why, ``hint`` what to do about it. code: for programs,
    see docs/codes.md.
    """

    code = "setup"

    def __init__(self, message: str, hint: str, code: str | None = None) -> None:
        super().__init__(message)
        self.hint = hint
        self.code = code or self.code


passed, failed, setup = 0, 1, 2
"""setup: nothing could be judged."""

unclear = 3
"""Nothing is wrong as far as was judged, but not all of it could be judged. Of nvfp4 compare: it
cannot be told which is faster. failed is also: slower."""

unread = 141
"""The output's reader is gone: as a shell reports a program that a broken pipe has ended."""


def error_object(code: str, message: str, hint: str | None = None) -> dict[str, Any]:
    """The documented JSON object where nothing was judged."""
    return {"schema": json_schema, "error": {"code": code, "message": message, "hint": hint}}


def print_error(error: SetupError | click.UsageError, as_json: bool) -> None:
    """The documented object on stdout, or a sentence on stderr. Raises a wrong usage again, which
    click shows, unless it is to be JSON.
    """
    if not as_json:
        if isinstance(error, click.UsageError):
            raise error
        click.echo(f"error: {error}\nhint: {error.hint}", err=True)
        return
    if isinstance(error, click.UsageError):
        content = error_object("usage", error.format_message())
    else:
        content = error_object(error.code, str(error), error.hint)
    click.echo(json.dumps(content, indent=2))
