"""Kernels that were rewritten for the GPU at hand, as the judge reports them."""

from collections.abc import Iterator
from typing import Any

from nvfp4.cli.text import visible_json
from nvfp4.records.plain import fits

_types = {
    **dict.fromkeys(("kernel", "source", "target"), "str"),
    **dict.fromkeys(("instructions", "added"), "int"),
    "rewritten": "dict[str, int]",
}
_shown_kernels = 3
_shown_opcodes = 4


def read_retargeted(text: str | None) -> list[dict[str, Any]]:
    """The kernels; what is none is left out."""
    found = visible_json(text)
    return [each for each in found if _is_kernel(each)] if isinstance(found, list) else []


def _is_kernel(value: object) -> bool:
    return isinstance(value, dict) and all(fits(_types[each], value.get(each)) for each in _types)


def retargeting_lines(kernels: list[dict[str, Any]]) -> Iterator[str]:
    """What was rewritten in each kernel, and what the times mean then."""
    if not kernels:
        return
    source, target = kernels[0]["source"], kernels[0]["target"]
    yield f"retargeted from {source} to {target}: times hold for this GPU and this code, no other"
    for kernel in kernels[:_shown_kernels]:
        opcodes = sorted(kernel["rewritten"].items(), key=lambda item: -item[1])
        listed = [f"{count} {opcode}" for opcode, count in opcodes[:_shown_opcodes]]
        if len(opcodes) > _shown_opcodes:
            listed.append("...")
        what = ", ".join(listed) or "nothing rewritten"
        total = kernel["instructions"]
        yield f"  {kernel['kernel']}: {total} PTX instructions {kernel['added']:+d}: {what}"
    if len(kernels) > _shown_kernels:
        yield f"  and {len(kernels) - _shown_kernels} more kernels; --json shows every one"
