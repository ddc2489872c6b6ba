"""Verdicts in a history of their own."""

import hashlib
from collections.abc import Callable

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


def invoke(*arguments: str) -> Result:
    """Runs a command."""
    return CliRunner().invoke(main, [*arguments])


def kept_in(history: History, verdict: Verdict, text: bytes = content) -> int:
    """Keeps a verdict and returns its number."""
    number = keep(verdict, text, history)
    assert number is not None
    return number


def is_error(text: str) -> bool:
    """Whether it is a sentence and a hint, and nothing else."""
    first, second = text.splitlines()
    return first.startswith("error: ") and second.startswith("hint: ")
