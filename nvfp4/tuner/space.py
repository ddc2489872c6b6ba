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

_required = ("configurations", "gemv", "tables")


def shape_of(text: str) -> Shape:
    """The shape written as M,K,L. Raises ValueError for anything else."""
    m, k, l = map(int, text.split(","))
    return m, k, l


def name_of(configuration: Any) -> str:
    """The fields of a configuration in order, as the ranking shows them."""
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


Key = int | tuple[int, int]
"""Of a table: the least compute capability, 90 for sm_90, and the least GB/s of memory for each
multiprocessor."""


def table_for(
    submission: Any, path: pathlib.Path, capability: int, memory_gbps: float = 0.0
) -> Key:
    """The key of the table that a device uses: the largest that it reaches.

    memory_gbps: for each multiprocessor. Raises TuneError if the submission declares no space or
    has no table for the device.
    """
    missing = [name for name in _required if not hasattr(submission, name)]
    if missing:
        raise TuneError(
            f"{path} declares no search space: it has no {', '.join(f'`{m}`' for m in missing)}",
            "Define configurations(m, k, l, capability), gemv(data, configuration) and tables.",
        )
    least = {key: key if isinstance(key, tuple) else (key, 0) for key in submission.tables}
    reached = [key for key, (sm, gbps) in least.items() if sm <= capability and gbps <= memory_gbps]
    if not reached:
        raise TuneError(
            f"the tables of {path} have none for sm_{capability}", "Add one, even if it is empty."
        )
    return max(reached, key=lambda key: least[key])
