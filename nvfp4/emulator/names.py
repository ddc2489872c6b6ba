"""Kernel names for people: C++ names demangled, CuTe DSL's cut to the function's own."""

from __future__ import annotations

import re

LONGEST = 100
"""A longer C++ name loses its template arguments."""

# What CuTe DSL appends to a function's name: its arguments as text, without punctuation.
_CUTE_DSL = re.compile(r"kernel_cutlass_(\w+?)_\d+")
_CUTE_DSL_ARGUMENT = re.compile(
    r"_+(?:tensor(?:ptr|o|\d)|ptr[a-z]+\d|Tiled_?(?:Copy|MMA)|(?:Copy|MMA)_?Atom|None(?:_|$)|(?:True|False)(?:_|$)"
    r"|S\d+_o_|[A-Za-z0-9]*_object(?:_at|$)|functionlambda|$)|$"
)


def short_name(kernel: str) -> str:
    """A kernel's name without its arguments; the name itself where nothing can be left out."""
    generated = _CUTE_DSL.fullmatch(kernel)
    if generated is not None:
        return _CUTE_DSL_ARGUMENT.split(generated[1], maxsplit=1)[0] or kernel
    name = demangled(kernel)
    return name if len(name) <= LONGEST else _without_arguments(name)


_MANGLED = re.compile(r"\b(?:_Z\w{3,}|kernel_cutlass_\w+?_\d+)\b")


def readable(text: str) -> str:
    """A text with every mangled name in it shortened."""
    return _MANGLED.sub(lambda found: short_name(found[0]), text)


def demangled(name: str) -> str:
    """The qualified name and template arguments of a C++ function, without its parameters.

    Reads the part of the Itanium ABI's scheme that kernels need; any other name comes back as it
    is.
    """
    if not name.startswith("_Z"):
        return name
    try:
        return _Demangler(name[2:]).name()
    except (ValueError, LookupError, RecursionError):
        return name


def _without_arguments(name: str) -> str:
    text, depth = "", 0
    for letter in name:
        depth -= letter == ">"
        if depth == 0:
            text += "..." + letter if letter == ">" else letter
        depth += letter == "<"
    return text


_BUILTIN = {
    "v": "void", "w": "wchar_t", "b": "bool", "c": "char", "a": "signed char", "h": "unsigned char",
    "s": "short", "t": "unsigned short", "i": "int", "j": "unsigned int", "l": "long",
    "m": "unsigned long", "x": "long long", "y": "unsigned long long", "n": "__int128",
    "o": "unsigned __int128", "f": "float", "d": "double", "e": "long double", "g": "__float128",
    "z": "...", "Dn": "std::nullptr_t", "Dh": "_Float16", "DF16_": "_Float16", "DF16b": "__bf16",
    "Di": "char32_t", "Ds": "char16_t", "Du": "char8_t",
}  # fmt: skip
_BUILTIN_CODE = re.compile("|".join(sorted(_BUILTIN, key=len, reverse=True)))
_STANDARD = {
    "Sa": "std::allocator", "Sb": "std::basic_string", "Ss": "std::string", "Si": "std::istream",
    "So": "std::ostream", "Sd": "std::iostream",
}  # fmt: skip
_QUALIFIERS = {"K": " const", "V": " volatile", "r": " __restrict__"}
_POINTERS = {"P": "*", "R": "&", "O": "&&"}
_DIGITS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ"

Type = tuple[str, str]
"""What stands left and right of a declared name: `int (*` and `)[4]`."""


class _Demangler:
    """Raises ValueError or LookupError at what it does not know."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self.seen: list[Type] = []

    def accept(self, *codes: str) -> str:
        """The one of the codes that comes next, taken; empty if none does."""
        for code in codes:
            if self.text.startswith(code, self.at):
                self.at += len(code)
                return code
        return ""

    def matched(self, pattern: str) -> str:
        found = re.compile(pattern).match(self.text, self.at)
        if found is None:
            raise ValueError(f"no {pattern} at {self.at}")
        self.at = found.end()
        return found[0]

    def ends(self) -> bool:
        return self.text.startswith("E", self.at)

    # --- names ------------------------------------------------------------------------------

    def name(self) -> str:
        """A name with its template arguments."""
        if self.accept("N"):
            return self.nested()
        if self.accept("St"):
            name = f"std::{self.identifier()}"
        elif self.text.startswith("S", self.at):
            # Only the name of a template is followed by arguments and can stand for it.
            return self.substitution()[0] + self.arguments()
        else:
            name = self.identifier()
        if self.text.startswith("I", self.at):
            self.seen.append((name, ""))
            name += self.arguments()
        return name

    def nested(self) -> str:
        self.matched("[rVK]*[RO]?")
        name = ""
        while not self.accept("E"):
            if self.text.startswith("I", self.at):
                name += self.arguments()
            elif self.accept("St"):
                name = "std"
                continue
            elif self.text.startswith("S", self.at):
                name = self.substitution()[0]
                continue
            else:
                name = f"{name}::{self.identifier()}" if name else self.identifier()
            if not self.ends():
                self.seen.append((name, ""))
        return name

    def identifier(self) -> str:
        self.accept("L")
        size = int(self.matched(r"[1-9]\d*"))
        name = self.text[self.at : self.at + size]
        if len(name) < size:
            raise ValueError("a name ends early")
        self.at += size
        while self.accept("B"):
            self.identifier()
        return "(anonymous namespace)" if name.startswith("_GLOBAL__N") else name

    def substitution(self) -> Type:
        """Something that was there before."""
        standard = self.accept(*_STANDARD)
        if standard:
            return _STANDARD[standard], ""
        code = self.matched("S[0-9A-Z]*_")[1:-1]
        index = 0
        for digit in code:
            index = 36 * index + _DIGITS.index(digit)
        return self.seen[index + 1 if code else 0]

    # --- template arguments -----------------------------------------------------------------

    def arguments(self) -> str:
        """`<...>`; empty where there are none."""
        if not self.accept("I"):
            return ""
        return f"<{', '.join(self.listed())}>"

    def listed(self) -> list[str]:
        found = []
        while not self.accept("E"):
            if self.accept("J"):
                found += self.listed()
            elif self.accept("L"):
                found.append(self.literal())
            else:
                found.append("".join(self.type()))
        return found

    def literal(self) -> str:
        left, right = self.type()
        if (left, right) == ("std::nullptr_t", ""):
            self.accept("0")
            value = "nullptr"
        else:
            value = self.matched(r"n?\d+").replace("n", "-")
            if left == "bool":
                value = "true" if value == "1" else "false"
            elif left not in _BUILTIN.values():
                value = f"({left}{right}){value}"
        self.matched("E")
        return value

    # --- types --------------------------------------------------------------------------------

    def type(self) -> Type:
        if self.text.startswith("S", self.at) and not self.text.startswith("St", self.at):
            found = self.substitution()
            if not self.text.startswith("I", self.at):
                return found
            found = (found[0] + self.arguments(), "")
        elif _BUILTIN_CODE.match(self.text, self.at):
            code = _BUILTIN_CODE.match(self.text, self.at)
            assert code is not None
            self.at = code.end()
            return _BUILTIN[code[0]], ""
        else:
            found = self.compound()
        self.seen.append(found)
        return found

    def compound(self) -> Type:
        qualifiers = self.matched("[rVK]*")
        if qualifiers:
            left, right = self.type()
            return left + "".join(_QUALIFIERS[q] for q in reversed(qualifiers)), right
        pointer = self.accept(*_POINTERS)
        if pointer:
            left, right = self.type()
            if right and not right.startswith(")"):
                return f"{left} ({_POINTERS[pointer]}", f"){right}"
            return left + _POINTERS[pointer], right
        if self.accept("A"):
            size = self.matched(r"\d*_")[:-1]
            left, right = self.type()
            return left, f"[{size}]{right}"
        if self.accept("F"):
            self.accept("Y")
            left, right = self.type()
            taken = []
            while not self.accept("E"):
                taken.append("".join(self.type()))
            return left, f"({', '.join([] if taken == ['void'] else taken)}){right}"
        if self.accept("u"):
            return self.identifier(), ""
        return self.name(), ""
