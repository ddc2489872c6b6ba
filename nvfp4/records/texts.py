"""Messages of a submission's process in readable form, with short names for kernels."""

import ctypes
import re
from functools import cache
from pathlib import Path

longest_bytes = 2800
"""Longest message: the judge keeps 3,000 bytes."""

_escapes = re.compile(r"\x1b(?:\[[0-9;?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_])")
_object_address = re.compile(r" at 0x[0-9a-fA-F]{6,}\b")
_address = re.compile(r"\b0x[0-9a-fA-F]{9,}\b")
_temporary = re.compile(r"(?<![/\w]\w)(?:/var)?/tmp/(?:[^\s'\":,()<>]*/|(?=[^\s'\":,()<>/]+\.\w+))")


def plain(text: str, submission: Path, name: str) -> str:
    """Remove escape sequences, and scratch folders and addresses, which differ from run to run."""
    text = _escapes.sub("", text)
    text = text.replace(f"{submission.parent}/", "")
    own = "|".join(map(re.escape, (name, submission.name)))  # a name may end in the other
    text = _temporary.sub("", re.sub(rf"(?<![\w.-])(?:{own})\b", lambda _: name, text))
    return _address.sub("0x...", _object_address.sub("", text))


def cut(text: str) -> str:
    """Return the text, or the beginning and the end of a long one."""
    encoded = text.encode(errors="backslashreplace")
    if len(encoded) <= longest_bytes:
        return text
    head, tail = encoded[: longest_bytes * 2 // 3], encoded[-longest_bytes // 3 :]
    first, last = (each.decode(errors="ignore") for each in (head, tail))
    first, last = first.rpartition("\n")[0] or first, last.partition("\n")[2] or last
    return f"{first}\n... (cut)\n{last}"


LONGEST = 100
"""A longer C++ name loses its template arguments."""

# What CuTe DSL appends to a function's name: its arguments as text, without punctuation.
_CUTE_DSL = re.compile(r"kernel_cutlass_(\w+?)_\d+")
_CUTE_DSL_ARGUMENT = re.compile(
    r"_+(?:tensor(?:ptr|o|\d)|ptr[a-z]+\d|Tiled_?(?:Copy|MMA)|(?:Copy|MMA)_?Atom|None(?:_|$)|(?:True|False)(?:_|$)"
    r"|S\d+_o_|[A-Za-z0-9]*_object(?:_at|$)|functionlambda|$)|$"
)


def short_name(kernel: str) -> str:
    """Return a kernel's name without its arguments, or the name itself if it has none."""
    generated = _CUTE_DSL.fullmatch(kernel)
    if generated is not None:
        return _CUTE_DSL_ARGUMENT.split(generated[1], maxsplit=1)[0] or kernel
    name = demangled(kernel)
    return name if len(name) <= LONGEST else _without_arguments(name)


_MANGLED = re.compile(r"\b(?:_Z\w{3,}|kernel_cutlass_\w+?_\d+)\b")


def readable(text: str) -> str:
    """Return a text with every mangled name in it shortened."""
    return _MANGLED.sub(lambda found: short_name(found[0]), text)


def demangled(name: str) -> str:
    """Return the qualified name and template arguments of a C++ kernel, without its parameters.

    Any other name is returned unchanged, as are all names without a C++ runtime library.
    """
    whole = _demangled_by_the_runtime(name) if name.startswith("_Z") else None
    if whole is None:
        return name
    depth = 0
    for at, letter in enumerate(whole):
        if letter == "(" and depth == 0 and not whole.startswith(_ANONYMOUS, at):
            whole = whole[:at]
            break
        depth += (letter in "<{") - (letter in ">}")
    return _SUFFIX.sub(r"\1", whole.removeprefix("void ")).replace("> >", ">>") or name


_ANONYMOUS = "(anonymous namespace)"
_SUFFIX = re.compile(r"\b(\d+)(?:u|u?ll?)\b")
"""The suffix of a number, which names its integer type."""


@cache
def _demangled_by_the_runtime(name: str) -> str | None:
    """Return the result of `abi::__cxa_demangle`; None if it cannot parse the name."""
    try:
        demangle = ctypes.CDLL("libstdc++.so.6").__cxa_demangle
    except (OSError, AttributeError):
        return None
    demangle.restype = ctypes.c_void_p
    demangle.argtypes = [ctypes.c_char_p, *[ctypes.c_void_p] * 3]
    text = demangle(name.encode(), None, None, None)
    if not text:
        return None
    found = ctypes.string_at(text).decode()
    free = ctypes.CDLL(None).free
    free.argtypes = [ctypes.c_void_p]
    free(text)
    return found


def _without_arguments(name: str) -> str:
    text, depth = "", 0
    for letter in name:
        depth -= letter == ">"
        if depth == 0:
            text += "..." + letter if letter == ">" else letter
        depth += letter == "<"
    return text
