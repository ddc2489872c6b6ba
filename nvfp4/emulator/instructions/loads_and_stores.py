"""ld and st."""

from collections.abc import Sequence

from nvfp4.emulator.instructions import access
from nvfp4.emulator.instructions import undefined as undefined_memory
from nvfp4.emulator.instructions.access_shape import (
    Access,
    access_of,
    elements_of,
    known_modifiers,
    space_of,
)
from nvfp4.emulator.instructions.action import Action, Result, Site, Source, instruction
from nvfp4.emulator.ptx.program import SymbolAddress
from nvfp4.emulator.ptx.types import Array, register_class
from nvfp4.emulator.state.batch import Execution

Arrays = Sequence[Array]


@instruction("ld", "ldu")
def ld(site: Site) -> Action:
    """ld{.weak...}{.space}{.hints}{.v2|.v4|.v8}.type d, [a]{, cache-policy}."""
    site.takes(2, 3)
    known_modifiers(site)
    memory = site.memory(1)
    targets = site.items(0)
    what = access_of(site, memory, elements_of(site, 0))
    signed = site.type().startswith("s")
    results = [Result(target, register_class(what.size), signed) for target in targets]

    space = space_of(site)
    is_small = space in ("param", "const") and what.space == "global"

    def run(ex: Execution, address: Array) -> tuple[Array, ...]:
        if is_small:
            address = ex.batch.launch.whole_address(space, address)
        return tuple(access.load(ex, what, address))

    base = memory.base
    if isinstance(base, SymbolAddress) and base.space == "param":
        return _parameter(base.offset + memory.offset, what, results)
    if what.space == "global":
        return Action("load", [Source(memory, "b64")], results, run)

    def shadow(ex: Execution, values: Arrays, shadows: Arrays) -> tuple[Array, ...]:
        return undefined_memory.loaded(ex, what, values[0])

    return Action("load", [Source(memory, "b64")], results, run, shadow=shadow, loads=True)


def _parameter(offset: int, what: Access, results: list[Result]) -> Action:
    """A kernel parameter at a known offset: the same for all threads."""

    def run(ex: Execution) -> tuple[Array, ...]:
        raw = ex.batch.launch.parameters[offset : offset + what.nbytes]
        values = raw.copy().view(what.dtype)
        return tuple(values[i : i + 1] for i in range(what.elements))

    return Action("load", [], results, run)


@instruction("st")
def st(site: Site) -> Action:
    """st{.weak...}{.space}{.hints}{.v2|.v4|.v8}.type [a], b{, cache-policy}."""
    site.takes(2, 3)
    known_modifiers(site)
    memory = site.memory(0)
    values = site.items(1)
    what = access_of(site, memory, elements_of(site, 1))
    base = memory.base
    is_parameter = isinstance(base, SymbolAddress) and base.space == "param"
    if space_of(site) == "const" or is_parameter:
        raise site.unsupported(f"{site.opcode}: {space_of(site)} memory cannot be written")
    cls = register_class(what.size)
    sources = [Source(memory, "b64"), *(Source(value, cls) for value in values)]

    def run(ex: Execution, address: Array, *data: Array) -> None:
        access.store(ex, what, address, list(data))

    def shadow(ex: Execution, values: Arrays, shadows: Arrays) -> tuple[Array, ...]:
        return (undefined_memory.stored(ex, what, values[0], shadows[1:]),)

    kept = None if what.space == "global" else shadow
    return Action("store", sources, [], run, shadow=kept)
