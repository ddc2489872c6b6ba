"""A submission as a module, and the space of configurations it declares."""

import dataclasses
import importlib.util
import pathlib
import sys
from typing import Any


class TuneError(Exception):
    """The message is one sentence; hint says what to do."""

    def __init__(self, message: str, hint: str) -> None:
        super().__init__(message)
        self.hint = hint


Shape = tuple[int, int, int]
"""m rows, k elements, l batches."""


def name_of(configuration: Any) -> str:
    """Return the fields of a configuration in order, as the ranking shows them: in ASCII, with
    escapes for all else."""
    shown = "/".join(map(str, dataclasses.astuple(configuration)))
    return shown.encode("unicode_escape").decode()


def sentence(error: BaseException) -> str:
    """Return an exception's type and message on one line of at most 200 characters, in ASCII with
    escapes for all else."""
    try:
        said = f"{type(error).__name__}: {error}"
    except Exception:  # a class of the submission's own may fail at whatever is asked of it
        said = type(error).__name__
    return " ".join(said.split())[:200].encode("unicode_escape").decode()


def load_submission(path: pathlib.Path) -> Any:
    """Import a file in this process, and return the module. Raises TuneError if that fails."""
    name = f"submission_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise TuneError(f"{path} is not a Python file", "Name a submission.")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses look their module up
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        message = f"{path} does not run by itself: {sentence(error)}"
        raise TuneError(message, f"python {path} shows where.") from error
    return module


def load_space(path: pathlib.Path) -> Any:
    """Load a submission that can be tuned. Raises TuneError if it declares no space."""
    submission = load_submission(path)
    missing = [each for each in ("configurations", "gemv") if not hasattr(submission, each)]
    if missing:
        raise TuneError(
            f"{path} declares no search space: it has no {', '.join(f'`{m}`' for m in missing)}",
            "Define configurations(m, k, l, capability) and gemv(data, configuration).",
        )
    return submission
