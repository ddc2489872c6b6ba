"""What went wrong when a submission was imported, in a message of its own kind."""

import difflib
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

from nvfp4.records.failures import believed, record_of
from nvfp4.records.messages import Failure, Load
from nvfp4.worker.runner import Refused, Runner, own_traceback

heading = "the import failed"
"""How the message of a submission that cannot be loaded begins; the command looks for it."""

_entry_point = "custom_kernel"
_known = ("cuda", "cupy", "cutlass", "numba", "numpy", "task", "torch", "triton", "utils")


class Loading:
    """Imports for a runner; operations: what carries out a kind of request."""

    def __init__(self, runner: Runner, submission: Path) -> None:
        self._submission = submission
        self._load = runner.operations[Load]
        self.operations: dict[type, Callable[[Load, int | None], object]] = {Load: self._explained}

    def _explained(self, request: Load, fd: int | None) -> object:
        try:
            return self._load(request, fd)
        except Refused as refused:
            module = sys.modules.get("submission")
            more = _about_entry_point(module) if module else ""
            return Failure("contract", f"{heading}: {refused}{more}")
        except SystemExit as stop:
            return Failure("exit", f"{heading}: the submission called sys.exit({stop.code!r})")
        except Exception as error:
            if getattr(error, "failure", "") == "setup":
                raise
            lines = [heading, own_traceback(error, self._submission)]
            hint = _import_hint(error) if isinstance(error, ModuleNotFoundError) else None
            text = "\n".join(lines + ([f"hint: {hint}"] if hint else []))
            ours = isinstance(getattr(error, "verdict_code", None), str)
            record = record_of(error, self._submission, imported=False) if ours else {}
            return Failure("exception", text, believed(record))


def _about_entry_point(module: ModuleType) -> str:
    """What there is in place of a function custom_kernel."""
    if hasattr(module, _entry_point):
        value = getattr(module, _entry_point)
        return f": it is {'None' if value is None else 'of type ' + type(value).__name__}"
    names = [
        name
        for name, value in vars(module).items()
        if callable(value) and getattr(value, "__module__", None) == module.__name__
    ]
    close = difflib.get_close_matches(_entry_point, names, n=1)
    return f"\nhint: did you mean {_entry_point}? It is called {close[0]} here" if close else ""


def _import_hint(error: ModuleNotFoundError) -> str | None:
    """What to do about a module that is not there."""
    name = (error.name or "").partition(".")[0]
    close = difflib.get_close_matches(name, [each for each in _known if each != name], n=1)
    if close:
        return f"did you mean {close[0]}?"
    return f"a submission is one file, and {name} is not installed"
