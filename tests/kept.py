"""Commands run in this process, and verdicts in a history of their own."""

import hashlib
import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from click.testing import CliRunner, Result

from nvfp4.cli.history.database import History
from nvfp4.cli.history.judgements import keep
from nvfp4.cli.main import main
from nvfp4.cli.verdict import Submission, Verdict

Judge = Callable[..., Result]

content = b"def custom_kernel(data):\n    return data[6]\n\r\n# \xff\x00\x1b[31m"


def named(verdict: Verdict, path: str = "mine.py", text: bytes = content) -> Verdict:
    """The same of another file."""
    verdict.submission = Submission(path, hashlib.sha256(text).hexdigest())
    return verdict


def invoke(*arguments: str, **environment: str) -> Result:
    """Runs a command."""
    return CliRunner().invoke(main, [*arguments], env=environment)


def succeeds(*arguments: str, code: int = 0) -> str:
    """What a command prints that ends with `code`."""
    done = invoke(*arguments)
    assert done.exit_code == code, done.output
    return done.output


refused = partial(succeeds, code=2)
"""What a command prints that cannot do what it is asked for."""


class Outcome(NamedTuple):
    """How a command on a submission ended. content: the object that it wrote."""

    exit_code: int
    content: dict[str, Any]
    output: str


def judged(folder: Path, source: str | bytes, command: str, *options: str) -> Outcome:
    """Run a command on a submission's text, as mine.py of a folder."""
    path, verdict = folder / "mine.py", folder / "verdict.json"
    path.write_bytes(source if isinstance(source, bytes) else source.encode())
    done = invoke(command, str(path), "--output", str(verdict), *options)
    return Outcome(done.exit_code, json.loads(verdict.read_text()), done.output)


def kept_in(history: History, verdict: Verdict, text: bytes = content) -> int:
    """Keeps a verdict and returns its number."""
    number = keep(verdict, text, history)
    assert number is not None
    return number


def is_error(text: str) -> bool:
    """Whether it is a sentence and a hint, and nothing else."""
    first, second = text.splitlines()
    return first.startswith("error: ") and second.startswith("hint: ")
