"""Recursive descent over the tokens of a PTX module: operands, declarations, functions."""

import struct
from collections.abc import Callable
from functools import partial
from typing import TypeVar

from nvfp4.emulator.errors import PtxSyntaxError
from nvfp4.emulator.ptx import constants, syntax
from nvfp4.emulator.ptx.lexer import LINE_DIRECTIVES, WARP_SIZE, Cursor
from nvfp4.emulator.ptx.types import is_type, type_bytes
from nvfp4.records.source import SourceLines

T = TypeVar("T")

_WIDTHS = {"0f": 32, "0F": 32, "0d": 64, "0D": 64}
"""The bits of a floating-point literal in hexadecimal, by its prefix."""


class OperandParser(Cursor):
    """Reads one operand at a time."""

    def operand(self) -> syntax.Operand:
        text = self.now.text
        if text == "[":
            return self.address()
        if text == "{":
            return self.items("{}")
        if text == "!" and self.tokens[self.at + 1].kind == "word" and not self._is_constant(1):
            self.at += 1
            return syntax.Not(syntax.Name(self.word()))
        if self.now.kind == "word" and not self._is_constant():
            name = syntax.Name(self.take().text)
            if self.accept("|"):
                return syntax.OperandList((name, self.operand()), "|")
            return syntax.Sum(name.text, self.addend()) if self.now.text == "+" else name
        return self.constant()

    def items(self, marks: str) -> syntax.OperandList:
        """Take operands in braces, or a call's results or arguments in parentheses."""
        self.expect(marks[0])
        items: list[syntax.Operand] = []
        while not self.accept(marks[1]):
            items.append(self.operand())
            self.accept(",")
        return syntax.OperandList(tuple(items), marks)

    def address(self) -> syntax.Memory:
        self.expect("[")
        base: syntax.Name | syntax.Integer
        if self.now.kind == "word" and not self._is_constant():
            base = syntax.Name(self.take().text)
        else:
            constant = self.constant()
            if not isinstance(constant, syntax.Integer):
                raise self.error("an address is an integer")
            base = constant
        offset = self.addend()
        coordinates = self.items("{}").items if self.accept(",") else None
        self.expect("]")
        return syntax.Memory(base, offset, coordinates)

    def addend(self) -> int:
        """Take the expression behind a name: all that follows its `+`."""
        if not self.accept("+"):
            return 0
        constant = self.constant()
        if not isinstance(constant, syntax.Integer):
            raise self.error("an address offset is an integer")
        return constants.signed(constant.value)

    # --- constant expressions -------------------------------------------------------------

    def _is_constant(self, ahead: int = 0) -> bool:
        return self.tokens[self.at + ahead].text == "WARP_SZ"

    def constant(self) -> syntax.Integer | syntax.Real:
        """Take a constant expression."""
        try:
            return constants.node(self._conditional())
        except constants.NoConstant as refusal:
            raise self.error(str(refusal)) from None

    def _conditional(self) -> constants.Constant:
        condition = self._binary(1)
        if not self.accept("?"):
            return condition
        first = self._conditional()
        self.expect(":")
        return constants.chosen(condition, first, self._conditional())

    def _binary(self, level: int) -> constants.Constant:
        """Take operators that bind at least as tightly as `level`, from left to right."""
        left = self._unary()
        while (own := constants.LEVELS.get(self.now.text, 0)) >= level:
            left = constants.binary(self.take().text, left, self._binary(own + 1))
        return left

    def _unary(self) -> constants.Constant:
        if self.now.kind == "number":
            return self._literal()
        if self.now.text in ("+", "-", "!", "~"):
            return constants.unary(self.take().text, self._unary())
        if self.accept("WARP_SZ"):
            return WARP_SIZE
        if not self.accept("("):
            raise self.error(f"expected an operand, found {self.now.text or 'the end'!r}")
        if self.now.text in (".s64", ".u64"):
            type_name = self.take().text
            self.expect(")")
            return constants.cast(type_name, self._unary())
        inside = self._conditional()
        self.expect(")")
        return inside

    def _literal(self) -> constants.Constant:
        text = self.now.text
        if text[:2] in _WIDTHS:
            self.at += 1
            return syntax.Real(int(text[2:], 16), _WIDTHS[text[:2]])
        if "." in text or ("e" in text.lower() and not text.lower().startswith("0x")):
            self.at += 1
            (bits,) = struct.unpack("<Q", struct.pack("<d", float(text)))
            return syntax.Real(bits, 64)
        return constants.literal(self.integer(), text.endswith("U"))


def real_bits(literal: syntax.Real, width: int) -> int:
    """Return the literal's bits as f32 (width 32) or f64 (width 64)."""
    if literal.width == width:
        return literal.bits
    if width == 32:
        (value,) = struct.unpack("<d", struct.pack("<Q", literal.bits))
        try:
            return int.from_bytes(struct.pack("<f", value), "little")
        except OverflowError:  # ptxas takes it for an infinity
            return 0x7F800000 | literal.bits >> 32 & 1 << 31
    if width == 64:
        (value,) = struct.unpack("<f", struct.pack("<I", literal.bits))
        return int.from_bytes(struct.pack("<d", value), "little")
    raise PtxSyntaxError(f"a floating-point literal where {width} bits are wanted")


_LINKAGE = {".visible", ".extern", ".weak", ".common"}
_SPACES = {".global", ".const", ".shared", ".local", ".param"}
_FUNCTION_DIRECTIVES_WITH_NUMBERS = {
    ".maxntid", ".reqntid", ".minnctapersm", ".maxnctapersm", ".maxnreg", ".reqnctapercluster",
    ".maxclusterrank", ".abi_preserve", ".abi_preserve_control",
}  # fmt: skip
_FUNCTION_FLAGS = {".noreturn", ".explicitcluster", ".unique"}


def parse(text: str) -> syntax.Module:
    """Parse a PTX module. Raises PtxSyntaxError with the line."""
    return ModuleParser(text).module()


class ModuleParser(OperandParser):
    """Reads declarations, functions and their bodies."""

    # --- module -------------------------------------------------------------------------

    def module(self) -> syntax.Module:
        module = syntax.Module(sources=SourceLines(self.text))
        while self.now.kind != "end":
            text = self.now.text
            if text in LINE_DIRECTIVES:
                argument = self.directive()
                if text == ".version":
                    module.version = argument
                elif text == ".target":
                    module.target = argument
            elif text == ".section":
                self.at += 1
                self.argument("directive")
                self.skip_braces()
            elif text == ".pragma":
                self.pragma()
            elif text == ".alias":
                self.skip_statement()
            else:
                self.top_level(module)
        return module

    def top_level(self, module: syntax.Module) -> None:
        linkage = set()
        while self.now.text in _LINKAGE:
            linkage.add(self.take().text)
        if self.now.text in (".entry", ".func"):
            function = self.function_definition()
            known = module.functions.get(function.name)
            if known is not None and known.body is not None and function.body is not None:
                raise self.error(f"{function.name} is defined twice")
            if function.body is not None or known is None:
                module.functions[function.name] = function
        elif self.now.text in _SPACES:
            module.variables.extend(self.variables(".extern" in linkage))
        else:
            raise self.error(f"unexpected {self.now.text!r} at module scope")

    def function_definition(self) -> syntax.Function:
        line = self.now.line
        entry = self.take().text == ".entry"
        results = self.formals() if self.now.text == "(" else ()
        name = self.function = self.word()
        parameters = self.formals() if self.now.text == "(" else ()
        required = cluster = most = None
        while True:
            text = self.now.text
            if text in _FUNCTION_DIRECTIVES_WITH_NUMBERS:
                self.at += 1
                x, y, z = (*self.numbers(), 1, 1, 1)[:3]
                if text == ".reqntid":
                    required = (x, y, z)
                elif text == ".maxntid":
                    most = x * y * z
                elif text == ".reqnctapercluster":
                    cluster = (x, y, z)
            elif text in _FUNCTION_FLAGS:
                self.at += 1
            elif text == ".pragma":
                self.pragma()
            elif text == ".blocksareclusters":
                raise self.error("a grid that counts clusters (.blocksareclusters)")
            else:
                break
        body = None if self.accept(";") else self.scope()
        self.function = "(module)"
        return syntax.Function(
            name, entry, results, parameters, body, required, most, cluster, line
        )

    def pragma(self) -> None:
        """Take pragma strings, which change no result."""
        self.expect(".pragma")
        self.listed(partial(self.argument, "string"))

    def listed(self, take: Callable[[], T]) -> list[T]:
        """Take one or more items with commas between them, and the semicolon behind them."""
        found = [take()]
        while self.accept(","):
            found.append(take())
        self.expect(";")
        return found

    def numbers(self) -> list[int]:
        values = []
        while self.now.kind == "number" or self.now.text == "WARP_SZ":
            values.append(self.count())
            self.accept(",")
        return values

    def formals(self) -> tuple[syntax.Variable, ...]:
        self.expect("(")
        found: list[syntax.Variable] = []
        while not self.accept(")"):
            if self.now.text not in (".param", ".reg"):
                raise self.error(f"expected a .param, found {self.now.text!r}")
            found.append(self.declarator(self.take().text[1:], False, *self.variable_type()))
            self.accept(",")
        return tuple(found)

    # --- declarations -------------------------------------------------------------------

    def variables(self, external: bool) -> list[syntax.Variable]:
        space = self.take().text[1:]
        kind = self.variable_type()
        return self.listed(lambda: self.declarator(space, external, *kind))

    def variable_type(self) -> tuple[str, int, int]:
        """Return (type, bytes of an element, alignment) of a declaration."""
        align = 0
        type_name = ""
        lanes = 1
        while self.now.kind == "directive":
            text = self.take().text
            if text == ".align":
                align = max(align, self.integer())
            elif text in (".v2", ".v4", ".v8"):
                lanes = int(text[2:])
            elif text == ".attribute":
                self.expect("(")
                while not self.accept(")"):
                    self.at += 1
            elif text == ".ptr":
                # The rest of `.ptr .global .align 16` describes the pointee.
                while self.now.text in (*_SPACES, ".align"):
                    if self.take().text == ".align":
                        self.at += 1
            else:
                type_name = text[1:]
        if not is_type(type_name):
            raise self.error(f"unknown type .{type_name}")
        element = type_bytes(type_name) * lanes
        return type_name, element, max(align, element, 1)

    def declarator(
        self, space: str, external: bool, type_name: str, element: int, align: int
    ) -> syntax.Variable:
        line = self.now.line
        name = self.word()
        count: int | None = 1
        while self.accept("["):
            if self.accept("]"):
                count = None
            else:
                extent = self.count()
                count = extent if count is None else count * extent
                self.expect("]")
        initial: list[tuple[int, int, int | tuple[str, int]]] = []
        if self.accept("="):
            self.initialiser(element, 0, initial)
            if count is None:
                count = (max(offset for offset, _, _ in initial) + element) // element
        nbytes = None if count is None else element * count
        return syntax.Variable(
            space, name, type_name, nbytes, align, tuple(initial), external, line
        )

    def initialiser(
        self, width: int, offset: int, out: list[tuple[int, int, int | tuple[str, int]]]
    ) -> int:
        """Append the values from `offset` on; returns the offset behind them."""
        if self.accept("{"):
            while not self.accept("}"):
                offset = self.initialiser(width, offset, out)
                self.accept(",")
            return offset
        if self.now.kind == "word" and not self._is_constant():
            name = self.take().text
            if name == "generic" and self.accept("("):
                name = self.word()
                self.expect(")")
            out.append((offset, width, (name, self.addend())))
        else:
            literal = self.constant()
            bits = literal.value if isinstance(literal, syntax.Integer) else literal.bits
            if isinstance(literal, syntax.Real) and literal.width != width * 8:
                bits = real_bits(literal, width * 8)
            out.append((offset, width, bits & ((1 << (8 * width)) - 1)))
        return offset + width

    def register_declaration(self) -> syntax.Registers:
        line = self.take().line
        type_name = ""
        while self.now.kind == "directive":
            text = self.take().text
            if text in (".v2", ".v4", ".v8"):
                raise self.error("vector registers are not read by this front end")
            type_name = text[1:]
        return syntax.Registers(type_name, tuple(self.listed(self.register_names)), line)

    def register_names(self) -> tuple[str, int | None]:
        """Take the name of a register, or that of several with their number."""
        name, count = self.word(), None
        if self.accept("<"):
            count = self.integer()
            self.expect(">")
        return name, count

    # --- bodies -------------------------------------------------------------------------

    def scope(self) -> syntax.Scope:
        self.expect("{")
        body: list[syntax.Statement] = []
        while not self.accept("}"):
            token = self.now
            if token.kind == "end":
                raise self.error("a '{' has no '}'")
            if token.text == "{":
                body.append(self.scope())
            elif token.text == ".reg":
                body.append(self.register_declaration())
            elif token.text in _SPACES:
                body.extend(self.variables(False))
            elif token.text in LINE_DIRECTIVES:
                self.directive()
            elif token.text == ".pragma":
                self.pragma()
            elif token.text == ";":
                self.at += 1
            elif token.kind == "word" and self.tokens[self.at + 1].text == ":":
                body.append(self.label())
            elif token.text == "@" or token.kind == "word":
                body.append(self.instruction())
            else:
                raise self.error(f"unexpected {token.text!r} in a function body")
        return syntax.Scope(tuple(body))

    def label(self) -> syntax.Label:
        """Parse a label. Lists of branch targets and prototypes have one too; the latter are
        skipped, as their uses are not emulated."""
        token = self.take()
        self.expect(":")
        if self.accept(".branchtargets"):
            return syntax.Label(token.text, token.line, tuple(self.listed(self.word)))
        if self.now.text in (".callprototype", ".calltargets"):
            self.skip_statement()
        return syntax.Label(token.text, token.line)

    def instruction(self) -> syntax.Instruction:
        first = self.now
        guard, negated = None, False
        if self.accept("@"):
            negated = self.accept("!")
            guard = syntax.Name(self.word())
        line = self.now.line
        opcode = self.word()
        calls = opcode.partition(".")[0] == "call"
        operands: list[syntax.Operand] = []
        while self.now.text != ";":
            operands.append(self.items("()") if calls and self.now.text == "(" else self.operand())
            if not self.accept(","):
                break
        last = self.now
        self.expect(";")
        text = " ".join(self.text[first.start : last.start].split())
        return syntax.Instruction(opcode, tuple(operands), guard, negated, line, text, first.start)
