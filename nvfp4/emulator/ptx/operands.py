"""Operands of instructions and initialisers: names, literals, addresses and lists."""

from __future__ import annotations

import struct

from nvfp4.emulator.errors import PtxSyntaxError
from nvfp4.emulator.ptx.cursor import Cursor
from nvfp4.emulator.ptx.syntax import (
    Address,
    Arguments,
    Integer,
    Name,
    Negated,
    Operand,
    Pair,
    Real,
    Sum,
    Vector,
)


class OperandParser(Cursor):
    """Reads one operand at a time."""

    def operand(self) -> Operand:
        text = self.now.text
        if text == "[":
            return self.address()
        if text == "{":
            return self.vector()
        if text == "(":
            self.at += 1
            items: list[Operand] = []
            while not self.accept(")"):
                items.append(self.operand())
                self.accept(",")
            return Arguments(tuple(items))
        if text == "!":
            self.at += 1
            return Negated(Name(self.word()))
        if self.now.kind == "word":
            name = Name(self.take().text)
            if self.accept("|"):
                return Pair(name, self.operand())
            if self.now.text in ("+", "-"):
                return Sum(name.text, self.addend())
            return name
        return self.literal()

    def vector(self) -> Vector:
        self.expect("{")
        items: list[Operand] = []
        while not self.accept("}"):
            items.append(self.operand())
            self.accept(",")
        return Vector(tuple(items))

    def address(self) -> Address:
        self.expect("[")
        base: Name | Integer
        if self.now.kind == "word":
            base = Name(self.take().text)
        else:
            literal = self.literal()
            if not isinstance(literal, Integer):
                raise self.error("an address is an integer")
            base = literal
        offset = self.addend()
        coordinates = None
        if self.accept(","):
            coordinates = self.vector()
        self.expect("]")
        return Address(base, offset, coordinates)

    def addend(self) -> int:
        total = 0
        while self.now.text in ("+", "-"):
            sign = -1 if self.take().text == "-" else 1
            literal = self.literal()
            if not isinstance(literal, Integer):
                raise self.error("an address offset is an integer")
            total += sign * literal.value
        return total

    def literal(self) -> Integer | Real:
        sign = 1
        while self.now.text in ("-", "+", "~"):
            mark = self.take().text
            if mark == "~":
                inner = self.literal()
                if isinstance(inner, Real):
                    raise self.error("'~' of a floating-point literal")
                return Integer(sign * ~inner.value)
            sign *= -1 if mark == "-" else 1
        if self.now.kind != "number":
            raise self.error(f"expected an operand, found {self.now.text or 'the end'!r}")
        text = self.take().text
        if text[:2] in ("0f", "0F"):
            bits = int(text[2:], 16)
            return Real(bits ^ (0x80000000 if sign < 0 else 0), 32)
        if text[:2] in ("0d", "0D"):
            bits = int(text[2:], 16)
            return Real(bits ^ (1 << 63 if sign < 0 else 0), 64)
        if "." in text or ("e" in text.lower() and not text.lower().startswith("0x")):
            (bits,) = struct.unpack("<Q", struct.pack("<d", sign * float(text)))
            return Real(bits, 64)
        self.at -= 1
        return Integer(sign * self.integer())


def real_bits(literal: Real, width: int) -> int:
    """The literal's bits as f32 (width 32) or f64 (width 64)."""
    if literal.width == width:
        return literal.bits
    if width == 32:
        (value,) = struct.unpack("<d", struct.pack("<Q", literal.bits))
        return int.from_bytes(struct.pack("<f", value), "little")
    if width == 64:
        (value,) = struct.unpack("<f", struct.pack("<I", literal.bits))
        return int.from_bytes(struct.pack("<d", value), "little")
    raise PtxSyntaxError(f"a floating-point literal where {width} bits are wanted")
