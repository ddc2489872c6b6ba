"""Where the shared variables of a kernel lie: the static ones first, then the dynamic ones."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from nvfp4.emulator.ptx import syntax
from nvfp4.emulator.ptx.program import SHARED_BASE

# A dynamic array holds whatever the kernel casts it to.
_DYNAMIC_ALIGN = 16


@dataclass(frozen=True)
class SharedLayout:
    """starts: the address of each variable. static_end: where static shared memory ends.
    dynamic_start: where all dynamic arrays start.
    """

    starts: dict[syntax.Variable, int]
    static_end: int
    dynamic_start: int


def shared_layout(module: syntax.Module, entry: syntax.Function) -> SharedLayout:
    """Place the shared variables of a module, of a kernel and of the functions it calls.

    A function's variable exists once, however often the function is called.
    """
    declared = [v for v in module.variables if v.space == "shared"]
    for function in _reached(module, entry):
        declared += (s for s in _statements(function.body) if isinstance(s, syntax.Variable))
    shared = [v for v in declared if v.space == "shared"]
    starts = {}
    end = SHARED_BASE
    for variable in shared:
        if variable.nbytes is not None:
            starts[variable] = round_up(end, variable.align)
            end = starts[variable] + variable.nbytes
    dynamic = [v for v in shared if v.nbytes is None]
    start = round_up(end, max([_DYNAMIC_ALIGN, *(v.align for v in dynamic)]))
    starts.update(dict.fromkeys(dynamic, start))
    return SharedLayout(starts, end, start)


def _reached(module: syntax.Module, entry: syntax.Function) -> list[syntax.Function]:
    """The kernel and the functions that it calls, directly or not."""
    found = {entry.name: entry}
    work = [entry]
    while work:
        for statement in _statements(work.pop().body):
            if isinstance(statement, syntax.Instruction):
                function = module.functions.get(syntax.callee(statement))
                if function is not None and function.name not in found:
                    found[function.name] = function
                    work.append(function)
    return list(found.values())


def _statements(scope: syntax.Scope | None) -> Iterator[syntax.Statement]:
    """Everything in a scope and in those within."""
    for statement in scope.body if scope else ():
        if isinstance(statement, syntax.Scope):
            yield from _statements(statement)
        else:
            yield statement


def round_up(value: int, align: int) -> int:
    """The next multiple of `align`."""
    return -(-value // align) * align
