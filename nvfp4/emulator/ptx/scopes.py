"""Lexical scopes of a PTX function: what its names stand for."""

from __future__ import annotations

from typing import TypeAlias

from nvfp4.emulator.ptx.program import LocalAddress, Register, SymbolAddress, Target
from nvfp4.emulator.ptx.syntax import Integer

Binding: TypeAlias = Register | SymbolAddress | LocalAddress | Integer | Target | tuple[Target, ...]


class Names:
    """The names of one scope; those of the scopes around it are found through `outer`."""

    def __init__(self, outer: Names | None = None) -> None:
        self.outer = outer
        self.bound: dict[str, Binding] = {}
        self.patterns: list[tuple[str, int, str]] = []

    def find(self, name: str) -> Binding | None:
        scope: Names | None = self
        while scope is not None:
            if name in scope.bound:
                return scope.bound[name]
            scope = scope.outer
        return None

    def pattern(self, name: str) -> tuple[Names, str] | None:
        """The scope and class of a `%r<100>`-style declaration that covers `name`."""
        scope: Names | None = self
        while scope is not None:
            for prefix, count, cls in scope.patterns:
                rest = name[len(prefix) :]
                if name.startswith(prefix) and rest.isdigit() and int(rest) < count:
                    return scope, cls
            scope = scope.outer
        return None
