"""The documented JSON object; see docs/json.md."""

import json

from nvfp4.cli.verdict import Verdict


def write(verdict: Verdict) -> str:
    """The object, indented. Numbers are finite, text is ASCII."""
    return json.dumps(verdict.as_json(), indent=2, allow_nan=False)
