"""Imports the judge's own modules from their folder, and nothing else from there.

The folder also holds the submission, and the contest's bot runs it there before it starts the
judge: a torch.py or random.py that it leaves behind must not stand in for a library. For a program
of several files this is what ``python -I`` does.
"""

import os
import sys

_folder = os.path.dirname(os.path.abspath(__file__))

modules = frozenset(
    {
        "batch",
        "buffers",
        "cases",
        "channel",
        "clock",
        "device",
        "diagnosis",
        "emulated",
        "exact",
        "gate",
        "isolation",
        "judge",
        "layout",
        "opened_case",
        "protocol",
        "reference",
        "repeat",
        "runner",
        "stats",
        "submission_process",
        "task",
        "timing",
    }
)


def keep_to_modules() -> None:
    """For a script of this folder, before it imports anything else."""
    if sys.path and os.path.abspath(sys.path[0]) == _folder:
        del sys.path[0]
    from importlib.abc import MetaPathFinder
    from importlib.machinery import ModuleSpec
    from importlib.util import spec_from_file_location

    class Finder(MetaPathFinder):
        """Finds the modules by their names."""

        def find_spec(self, name: str, path: object, target: object = None) -> ModuleSpec | None:
            if name not in modules:
                return None
            return spec_from_file_location(name, os.path.join(_folder, f"{name}.py"))

    sys.meta_path.insert(0, Finder())
