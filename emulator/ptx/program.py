"""One kernel, flat: calls inlined, scopes gone, every name a register, address or label."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TypeAlias

from nvfp4.emulator.errors import PtxSyntaxError, UnsupportedInstruction, Where
from nvfp4.emulator.ptx import syntax
from nvfp4.emulator.ptx.syntax import Integer, Real

# The first KiB of shared memory belongs to the system on sm_90 and later.
SHARED_BASE = 1024
_CLASS_OF_WIDTH = {8: "b8", 16: "b16", 32: "b32", 64: "b64"}
_INTRINSIC_CALLS = {"vprintf", "__assertfail"}


@dataclass(frozen=True)
class Register:
    """index into the register file; cls is pred, b8, b16, b32 or b64."""

    index: int
    cls: str
    name: str


@dataclass(frozen=True)
class Sink:
    """The `_` operand."""


@dataclass(frozen=True)
class Special:
    """A special register, without its percent sign: `tid.x`."""

    name: str


@dataclass(frozen=True)
class SymbolAddress:
    """Address of a parameter, global or constant, known when the launch or module is set up."""

    space: str
    name: str
    offset: int


@dataclass(frozen=True)
class LocalAddress:
    """Byte offset in the thread's local memory."""

    offset: int


@dataclass(frozen=True)
class Memory:
    """`[base + offset]`; `space` is that of a variable named as the base, else None."""

    base: Register | Integer | SymbolAddress | LocalAddress
    offset: int
    coordinates: tuple[Operand, ...] | None = None


@dataclass(frozen=True)
class Several:
    """Elements of a braced list, or both halves of a `p|q` pair."""

    items: tuple[Operand, ...]


@dataclass(frozen=True)
class Not:
    operand: Register


@dataclass(frozen=True)
class Target:
    """A label's number; `Program.labels` has where it stands."""

    label: int


Operand: TypeAlias = (
    Register
    | Sink
    | Special
    | SymbolAddress
    | LocalAddress
    | Memory
    | Several
    | Not
    | Target
    | Integer
    | Real
)


@dataclass(frozen=True)
class Instruction:
    """opcode as written; parts is the opcode split at its dots; negated belongs to guard."""

    opcode: str
    parts: tuple[str, ...]
    operands: tuple[Operand, ...]
    guard: Register | None
    negated: bool
    line: int
    text: str


@dataclass
class Program:
    """A kernel ready for `flow`.

    parameters: (name, byte offset, bytes) in order. shared: bytes of static shared memory,
    without the dynamic part, which starts at `dynamic_shared`. variables: the .global and .const
    ones of the module. labels: label number -> index into `code`.
    """

    kernel: str
    parameters: list[tuple[str, int, int]] = field(default_factory=list)
    registers: list[Register] = field(default_factory=list)
    code: list[Instruction] = field(default_factory=list)
    labels: dict[int, int] = field(default_factory=dict)
    variables: dict[str, syntax.Variable] = field(default_factory=dict)
    shared_end: int = SHARED_BASE
    dynamic_shared: int | None = None
    local_bytes: int = 0
    required_threads: tuple[int, int, int] | None = None

    @property
    def parameter_bytes(self) -> int:
        return max((offset + size for _, offset, size in self.parameters), default=0)


_Binding: TypeAlias = (
    Register | SymbolAddress | LocalAddress | Integer | Target | tuple[Target, ...]
)


class _Names:
    """Lexical scopes."""

    def __init__(self, outer: _Names | None = None):
        self.outer = outer
        self.bound: dict[str, _Binding] = {}
        self.patterns: list[tuple[str, int, str]] = []

    def find(self, name: str) -> _Binding | None:
        scope: _Names | None = self
        while scope is not None:
            if name in scope.bound:
                return scope.bound[name]
            scope = scope.outer
        return None

    def pattern(self, name: str) -> tuple[_Names, str] | None:
        """The scope and class of a `%r<100>`-style declaration that covers `name`."""
        scope: _Names | None = self
        while scope is not None:
            for prefix, count, cls in scope.patterns:
                rest = name[len(prefix) :]
                if name.startswith(prefix) and rest.isdigit() and int(rest) < count:
                    return scope, cls
            scope = scope.outer
        return None


def link(module: syntax.Module, kernel: str) -> Program:
    """Flatten `kernel` of a parsed module.

    Raises PtxSyntaxError for names that nothing declares, UnsupportedInstruction for recursion,
    calls through pointers and functions without a body.
    """
    function = module.functions.get(kernel)
    if function is None or not function.entry or function.body is None:
        entries = [f.name for f in module.functions.values() if f.entry]
        raise PtxSyntaxError(
            f"the module has no kernel {kernel!r}",
            hint=f"its kernels are {', '.join(entries) or 'none'}",
        )
    return _Linker(module, function).program


class _Linker:
    def __init__(self, module: syntax.Module, entry: syntax.Function):
        self.module = module
        self.program = Program(entry.name, required_threads=entry.required_threads)
        self.label_count = 0
        self.calls: list[str] = [entry.name]
        self.names = _Names()
        self.returns: int | None = None
        self.line = entry.line
        self.dynamic: list[syntax.Variable] = []
        for variable in module.variables:
            self.module_variable(variable)
        self.names = _Names(self.names)
        offset = 0
        for parameter in entry.parameters:
            assert parameter.nbytes is not None
            offset = _up(offset, parameter.align)
            self.program.parameters.append((parameter.name, offset, parameter.nbytes))
            self.names.bound[parameter.name] = SymbolAddress("param", parameter.name, offset)
            offset += parameter.nbytes
        self.collect_shared(entry.body)
        self.place_dynamic_shared()
        assert entry.body is not None
        self.scope(entry.body)
        self.emit(syntax.Instruction("exit", (), None, self.line, "(end of the kernel)"))

    def error(self, message: str, hint: str | None = None) -> PtxSyntaxError:
        return PtxSyntaxError(message, where=Where(self.program.kernel, self.line), hint=hint)

    # --- variables ----------------------------------------------------------------------

    def module_variable(self, variable: syntax.Variable) -> None:
        if variable.space == "shared":
            if variable.nbytes is None:
                self.dynamic.append(variable)
            else:
                self.place_shared(variable)
        else:
            self.program.variables[variable.name] = variable
            self.names.bound[variable.name] = SymbolAddress(variable.space, variable.name, 0)

    def place_shared(self, variable: syntax.Variable) -> None:
        assert variable.nbytes is not None
        start = _up(self.program.shared_end, variable.align)
        self.names.bound[variable.name] = Integer(start)
        self.program.shared_end = start + variable.nbytes

    def collect_shared(self, scope: syntax.Scope | None) -> None:
        """Static shared variables of a body count before the dynamic ones are placed."""
        if scope is None:
            return
        for statement in scope.body:
            if isinstance(statement, syntax.Variable) and statement.space == "shared":
                self.place_shared(statement)
            elif isinstance(statement, syntax.Scope):
                self.collect_shared(statement)

    def place_dynamic_shared(self) -> None:
        align = max((v.align for v in self.dynamic), default=16)
        start = _up(self.program.shared_end, max(align, 16))
        self.program.dynamic_shared = start
        for variable in self.dynamic:
            self.names.bound[variable.name] = Integer(start)

    def place_local(self, variable: syntax.Variable) -> LocalAddress:
        if variable.nbytes is None:
            raise self.error(f"local variable {variable.name} has no size")
        start = _up(self.program.local_bytes, variable.align)
        self.program.local_bytes = start + variable.nbytes
        return LocalAddress(start)

    # --- bodies -------------------------------------------------------------------------

    def scope(self, scope: syntax.Scope) -> None:
        self.names = _Names(self.names)
        for statement in scope.body:
            if isinstance(statement, syntax.Label):
                if statement.name in self.names.bound:
                    self.line = statement.line
                    raise self.error(f"label {statement.name} stands twice in one scope")
                self.names.bound[statement.name] = Target(self.new_label())
        for statement in scope.body:
            if isinstance(statement, syntax.TargetList):
                targets = []
                for name in statement.labels:
                    target = self.names.find(name)
                    if not isinstance(target, Target):
                        raise self.error(f"no label {name}")
                    targets.append(target)
                self.names.bound[statement.name] = tuple(targets)
        for statement in scope.body:
            self.statement(statement)
        assert self.names.outer is not None
        self.names = self.names.outer

    def statement(self, statement: syntax.Statement) -> None:
        if isinstance(statement, syntax.Scope):
            self.scope(statement)
        elif isinstance(statement, syntax.Registers):
            self.declare(statement)
        elif isinstance(statement, syntax.Variable):
            if statement.space in ("local", "param"):
                self.names.bound[statement.name] = self.place_local(statement)
            elif statement.space != "shared":
                self.module_variable(statement)
        elif isinstance(statement, syntax.Label):
            target = self.names.bound[statement.name]
            if not isinstance(target, Target):
                self.line = statement.line
                raise self.error(f"{statement.name} is a label and something else")
            self.place_label(target.label)
        elif isinstance(statement, syntax.Instruction):
            self.line = statement.line
            self.instruction(statement)

    def declare(self, declaration: syntax.Registers) -> None:
        cls = self.register_class(declaration.type)
        for name, count in declaration.names:
            if count is None:
                self.names.bound[name] = self.new_register(name, cls)
            else:
                self.names.patterns.append((name, count, cls))

    def register_class(self, type_name: str) -> str:
        if type_name == "pred":
            return "pred"
        if type_name in ("f16x2", "bf16x2"):
            return "b32"
        width = int("".join(c for c in type_name if c.isdigit()) or 0)
        if type_name == "bf16":
            width = 16
        if width not in _CLASS_OF_WIDTH:
            raise UnsupportedInstruction(
                f"registers of type .{type_name} are not emulated",
                where=Where(self.program.kernel, self.line),
                hint="split 128-bit values into two .b64 registers",
            )
        return _CLASS_OF_WIDTH[width]

    def new_register(self, name: str, cls: str) -> Register:
        register = Register(len(self.program.registers), cls, name)
        self.program.registers.append(register)
        return register

    def new_label(self) -> int:
        self.label_count += 1
        return self.label_count

    def place_label(self, label: int) -> None:
        self.program.labels[label] = len(self.program.code)

    # --- instructions -------------------------------------------------------------------

    def instruction(self, node: syntax.Instruction) -> None:
        mnemonic = node.opcode.split(".", 1)[0]
        if mnemonic == "call":
            self.call(node)
        elif mnemonic in ("bar", "barrier") and ".red" in node.opcode:
            self.reduction_barrier(node)
        elif mnemonic == "ret" and self.returns is not None:
            self.jump(self.returns, node)
        else:
            self.emit(node)

    def reduction_barrier(self, node: syntax.Instruction) -> None:
        """Two steps, as threads wait between them: meet and vote, then read the outcome."""
        self.emit(replace(node, operands=node.operands[1:]))
        outcome = node.opcode.replace(".red", ".outcome")
        self.emit(replace(node, opcode=outcome, operands=node.operands[:2]))

    def jump(self, label: int, node: syntax.Instruction) -> None:
        guard = self.guard(node)
        self.program.code.append(
            Instruction(
                "bra",
                ("bra",),
                (Target(label),),
                guard,
                bool(node.guard and node.guard.negated),
                node.line,
                node.text,
            )
        )

    def emit(self, node: syntax.Instruction) -> None:
        guard = self.guard(node)
        operands = tuple(self.operand(operand) for operand in node.operands)
        self.program.code.append(
            Instruction(
                node.opcode,
                tuple(node.opcode.split(".")),
                operands,
                guard,
                bool(node.guard and node.guard.negated),
                node.line,
                node.text,
            )
        )

    def guard(self, node: syntax.Instruction) -> Register | None:
        if node.guard is None:
            return None
        register = self.name(node.guard.name)
        if not isinstance(register, Register) or register.cls != "pred":
            raise self.error(f"{node.guard.name} guards an instruction but is no predicate")
        return register

    def operand(self, node: syntax.Operand) -> Operand:
        if isinstance(node, syntax.Name):
            return Sink() if node.text == "_" else self.name(node.text)
        if isinstance(node, syntax.Sum):
            return _plus(self.name(node.name), node.offset, self)
        if isinstance(node, syntax.Address):
            base = node.base if isinstance(node.base, Integer) else self.name(node.base.text)
            if not isinstance(base, (Register, Integer, SymbolAddress, LocalAddress)):
                raise self.error(f"{node.base} is no address")
            coordinates = None
            if node.coordinates is not None:
                coordinates = tuple(self.operand(c) for c in node.coordinates.items)
            return Memory(base, node.offset, coordinates)
        if isinstance(node, syntax.Vector):
            return Several(tuple(self.operand(item) for item in node.items))
        if isinstance(node, syntax.Pair):
            return Several((self.operand(node.first), self.operand(node.second)))
        if isinstance(node, syntax.Negated):
            register = self.name(node.operand.text)
            if not isinstance(register, Register):
                raise self.error(f"!{node.operand.text} is no predicate")
            return Not(register)
        if isinstance(node, (Integer, Real)):
            return node
        raise self.error("an operand list in brackets belongs to a call")

    def name(self, text: str) -> Operand:
        bound = self.names.find(text)
        if bound is None:
            covered = self.names.pattern(text)
            if covered is not None:
                scope, cls = covered
                bound = scope.bound[text] = self.new_register(text, cls)
        if isinstance(bound, tuple):
            return Several(bound)
        if bound is not None:
            return bound
        if text.startswith("%"):
            return Special(text[1:])
        if text in ("WARP_SZ",):
            return Integer(32)
        raise self.error(f"nothing declares {text}")

    # --- calls --------------------------------------------------------------------------

    def call(self, node: syntax.Instruction) -> None:
        operands = list(node.operands)
        results: tuple[syntax.Operand, ...] = ()
        if operands and isinstance(operands[0], syntax.Arguments):
            results = operands.pop(0).items  # type: ignore[union-attr]
        callee = operands.pop(0) if operands else None
        arguments: tuple[syntax.Operand, ...] = ()
        if operands and isinstance(operands[0], syntax.Arguments):
            arguments = operands[0].items
        name = callee.text if isinstance(callee, syntax.Name) else ""
        if name in _INTRINSIC_CALLS:
            self.emit(
                syntax.Instruction(name, (*results, *arguments), node.guard, node.line, node.text)
            )
            return
        function = self.module.functions.get(name)
        if function is None or function.body is None:
            raise UnsupportedInstruction(
                f"call of {name or 'a pointer'}, which has no body in this module",
                where=Where(self.program.kernel, node.line, node.text),
                hint="only functions of the same PTX module can be called, by name",
            )
        if name in self.calls:
            raise UnsupportedInstruction(
                f"recursion of {name}",
                where=Where(self.program.kernel, node.line, node.text),
                hint="calls are inlined; write the recursion as a loop",
            )
        self.inline(function, results, arguments, node)

    def inline(
        self,
        function: syntax.Function,
        results: tuple[syntax.Operand, ...],
        arguments: tuple[syntax.Operand, ...],
        node: syntax.Instruction,
    ) -> None:
        formals = (*function.results, *function.parameters)
        actuals = (*results, *arguments)
        if len(formals) != len(actuals):
            raise self.error(f"{function.name} takes {len(formals)} arguments")
        end = self.new_label()
        if node.guard is not None:
            guard = self.guard(node)
            self.program.code.append(
                Instruction(
                    "bra",
                    ("bra",),
                    (Target(end),),
                    guard,
                    not node.guard.negated,
                    node.line,
                    node.text,
                )
            )
        bound: dict[str, _Binding] = {}
        for formal, actual in zip(formals, actuals, strict=True):
            value = self.operand(actual)
            if not isinstance(value, (Register, LocalAddress, SymbolAddress, Integer)):
                raise self.error(f"argument {formal.name} of {function.name} cannot be passed")
            bound[formal.name] = value
        caller, self.names = self.names, _Names(self.module_scope())
        self.names.bound.update(bound)
        outer_return, self.returns = self.returns, end
        self.calls.append(function.name)
        self.collect_shared(function.body)
        assert function.body is not None
        self.scope(function.body)
        self.calls.pop()
        self.returns = outer_return
        self.names = caller
        self.place_label(end)

    def module_scope(self) -> _Names:
        scope = self.names
        while scope.outer is not None:
            scope = scope.outer
        return scope


def _plus(base: Operand, offset: int, linker: _Linker) -> Operand:
    if isinstance(base, Integer):
        return Integer(base.value + offset)
    if isinstance(base, SymbolAddress):
        return SymbolAddress(base.space, base.name, base.offset + offset)
    if isinstance(base, LocalAddress):
        return LocalAddress(base.offset + offset)
    raise linker.error("only an address can have a constant added to it")


def _up(value: int, align: int) -> int:
    return -(-value // align) * align
