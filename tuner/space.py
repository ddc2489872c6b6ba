"""A submission as a module, and the space of configurations it declares."""

from __future__ import annotations

import dataclasses
import importlib.util
import pathlib
import sys
from typing import Any

from nvfp4.tuner.errors import TuneError

Shape = tuple[int, int, int]
"""m rows, k elements, l batches."""

_required = ("configurations", "gemv", "tables")


def shape_of(text: str) -> Shape:
    """The shape written as M,K,L. Raises ValueError for anything else."""
    m, k, l = map(int, text.split(","))
    return m, k, l


def name_of(configuration: Any) -> str:
    """The fields of a configuration in order, as the ranking and the state show them."""
    return "/".join(map(str, dataclasses.astuple(configuration)))


def sentence(error: BaseException) -> str:
    """An exception's type and message on one line of at most 200 characters."""
    return " ".join(f"{type(error).__name__}: {error}".split())[:200]


def load_submission(path: pathlib.Path) -> Any:
    """The module in a file, executed in this process. Raises TuneError if it does not import."""
    name = f"submission_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise TuneError(f"{path} is not a Python file", "Name a submission.")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses look their module up
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        raise TuneError(
            f"{path} does not run by itself: {sentence(error)}", f"python {path} shows where."
        ) from error
    return module


def table_for(submission: Any, path: pathlib.Path, capability: int) -> int:
    """The key of the table that a device of this capability uses.

    capability: 90 for sm_90. Raises TuneError if the submission declares no space or has no table
    for the device.
    """
    missing = [name for name in _required if not hasattr(submission, name)]
    if missing:
        raise TuneError(
            f"{path} declares no search space: it has no {', '.join(f'`{m}`' for m in missing)}",
            "Define configurations(m, k, l, capability), gemv(data, configuration) and tables.",
        )
    keys = [key for key in submission.tables if key <= capability]
    if not keys:
        raise TuneError(
            f"the tables of {path} have none for sm_{capability}", "Add one, even if it is empty."
        )
    return max(keys)
