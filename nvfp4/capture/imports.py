"""Does something when a package is imported for the first time, and not before."""

import sys
from collections.abc import Callable, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import ModuleType


def when_imported(package: str, action: Callable[[], None]) -> Callable[[], None]:
    """Call `action` right after a top-level package was imported; at once if it is already.

    Returns a function that cancels this. Nothing happens if the package is missing.
    """
    if package in sys.modules:
        action()
        return lambda: None
    finder = _Finder(package, action)
    sys.meta_path.insert(0, finder)
    return finder.remove


class _Finder(MetaPathFinder):
    def __init__(self, package: str, action: Callable[[], None]) -> None:
        self.package = package
        self.action = action

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return the package as others find it, with a loader that calls the action afterwards."""
        if name != self.package:
            return None
        self.remove()
        spec = find_spec(name)
        if spec is not None and spec.loader is not None:
            loader = spec.loader

            def exec_module(module: ModuleType) -> None:
                del loader.exec_module  # which lets the loader's own be seen, for a reload, too
                loader.exec_module(module)
                self.action()

            loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec

    def remove(self) -> None:
        """Stop waiting for the import."""
        if self in sys.meta_path:
            sys.meta_path.remove(self)
