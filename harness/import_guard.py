"""Imports the judge's own modules from their folder, and nothing else from there.

The bot runs the submission in that folder before it starts the judge: a torch.py that it leaves
behind must not stand in for the library.
"""

import os
import sys

_folder = os.path.dirname(os.path.abspath(__file__))
_problem = _folder
if not os.path.exists(os.path.join(_folder, "task.yml")):  # a checkout: the judge has a folder
    _problem = os.path.dirname(_folder)


def path_of(name: str) -> str:
    """The file of a module of the judge."""
    own = os.path.join(_folder, f"{name}.py")
    return own if os.path.exists(own) else os.path.join(_problem, f"{name}.py")


def keep_to_modules() -> None:
    """Before other imports of a script: hides all but the modules that task.yml lists."""
    while sys.path and os.path.abspath(sys.path[0]) in (_folder, _problem):
        del sys.path[0]
    import re
    from importlib.abc import MetaPathFinder
    from importlib.machinery import ModuleSpec
    from importlib.util import spec_from_file_location

    with open(os.path.join(_problem, "task.yml"), encoding="utf-8") as file:
        known = set(re.findall(r"\bname\W+(\w+)\.py\b", file.read())) - {"submission"}

    class Finder(MetaPathFinder):
        def find_spec(self, name: str, path: object, target: object = None) -> ModuleSpec | None:
            return spec_from_file_location(name, path_of(name)) if name in known else None

    sys.meta_path.insert(0, Finder())
