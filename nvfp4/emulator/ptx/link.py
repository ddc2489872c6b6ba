"""From a syntax tree to one flat kernel: calls inlined, scopes resolved, variables placed."""

from collections.abc import Iterator
from dataclasses import replace
from typing import TypeAlias

from nvfp4.emulator.errors import PtxSyntaxError, SourceLocation, UnsupportedInstruction
from nvfp4.emulator.ptx import syntax
from nvfp4.emulator.ptx.types import TYPES

# A dynamic array holds whatever the kernel casts it to.
_DYNAMIC_ALIGN = 16


def _place_shared(
    module: syntax.Module, entry: syntax.Function, program: syntax.Program
) -> dict[syntax.Variable, int]:
    """Place the shared variables of a module, of a kernel and of the functions it calls: the
    static ones first, then the dynamic ones, all at one address.

    A function's variable exists once, however often the function is called.
    """
    inside = (each for function in _reached(module, entry) for each in statements(function.body))
    declared = *module.variables, *(each for each in inside if isinstance(each, syntax.Variable))
    shared = [v for v in declared if v.space == "shared"]
    starts = {}
    for variable in shared:
        if variable.nbytes is not None:
            starts[variable] = round_up(program.shared_end, variable.align)
            program.shared_end = starts[variable] + variable.nbytes
    dynamic = [v for v in shared if v.nbytes is None]
    align = max([_DYNAMIC_ALIGN, *(v.align for v in dynamic)])
    program.dynamic_shared = round_up(program.shared_end, align)
    return starts | dict.fromkeys(dynamic, program.dynamic_shared)


def _reached(module: syntax.Module, entry: syntax.Function) -> list[syntax.Function]:
    """Return the kernel and the functions that it calls, directly or not."""
    found = {entry.name: entry}
    work = [entry]
    while work:
        for statement in statements(work.pop().body):
            if isinstance(statement, syntax.Instruction):
                function = module.functions.get(syntax.callee(statement))
                if function is not None and function.name not in found:
                    found[function.name] = function
                    work.append(function)
    return list(found.values())


def statements(scope: syntax.Scope | None) -> Iterator[syntax.Statement]:
    """Everything in a scope and in those within."""
    for statement in scope.body if scope else ():
        if isinstance(statement, syntax.Scope):
            yield from statements(statement)
        else:
            yield statement


def round_up(value: int, align: int) -> int:
    """The next multiple of `align`."""
    return -(-value // align) * align


_WIDE = "b128"
"""Type of registers that are two of b64."""
_INTRINSIC_CALLS = {"vprintf", "__assertfail"}
_CARRY = "CC.CF0"
"""Register of the carry flag, of all functions. It exists where it is used; no name of PTX has a
dot."""


def link(module: syntax.Module, kernel: str) -> syntax.Program:
    """Flatten `kernel` of a parsed module.

    Raises PtxSyntaxError for names that nothing declares, UnsupportedInstruction for recursion,
    calls through pointers and functions without a body.
    """
    function = module.functions.get(kernel)
    if function is None or not function.entry or function.body is None:
        entries = [f.name for f in module.functions.values() if f.entry]
        message = f"the module has no kernel {kernel!r}"
        raise PtxSyntaxError(message, hint=f"its kernels are {', '.join(entries) or 'none'}")
    return _Linker(module, function).program


class _Linker:
    def __init__(self, module: syntax.Module, entry: syntax.Function) -> None:
        self.module = module
        self.program = syntax.Program(entry.name, entry)
        self.label_count = 0
        self.tables: dict[int, tuple[str, ...]] = {}
        self.calls: list[str] = [entry.name]
        self.names = Names()
        self.names.patterns.append((_CARRY[:-1], 1, "pred"))
        self.returns: int | None = None
        self.line = entry.line
        self.shared = _place_shared(module, entry, self.program)
        for variable in module.variables:
            self.variable(variable)
        self.names = Names(self.names)
        offset = 0
        for parameter in entry.parameters:
            assert parameter.nbytes is not None
            offset = round_up(offset, parameter.align)
            self.program.parameters.append((parameter.name, offset, parameter.nbytes))
            self.names.bound[parameter.name] = syntax.SymbolAddress("param", parameter.name, offset)
            offset += parameter.nbytes
        assert entry.body is not None
        self.scope(entry.body)
        self.emit(syntax.Instruction("exit", (), None, False, self.line, "(end of the kernel)"))

    def error(self, message: str, hint: str | None = None) -> PtxSyntaxError:
        return PtxSyntaxError(message, where=self.place(self.line), hint=hint)

    def place(self, line: int, text: str | None = None) -> SourceLocation:
        return SourceLocation(self.program.kernel, line, text, source=self.module.sources.at(line))

    # --- variables ----------------------------------------------------------------------

    def variable(self, variable: syntax.Variable) -> None:
        """Declare a variable that exists once for all declarations of its name."""
        if variable.space == "shared":
            place = self.shared[variable]
            self.names.bound[variable.name] = syntax.SymbolAddress("shared", variable.name, place)
        else:
            known = self.program.variables.get(variable.name, variable)
            if known is not variable and not (known.external or variable.external):
                self.line = variable.line
                raise self.error(f"two variables are called {variable.name}")
            if known.external or known is variable:
                self.program.variables[variable.name] = variable
            self.names.bound[variable.name] = syntax.SymbolAddress(variable.space, variable.name, 0)

    # --- bodies -------------------------------------------------------------------------

    def scope(self, scope: syntax.Scope) -> None:
        self.names = Names(self.names)
        for statement in scope.body:
            if isinstance(statement, syntax.Label):
                if statement.name in self.names.bound:
                    self.line = statement.line
                    raise self.error(f"label {statement.name} is defined twice in one scope")
                label = self.new_label()
                self.names.bound[statement.name] = syntax.Target(label)
                self.tables[label] = statement.targets
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
                if statement.nbytes is None:
                    raise self.error(f"local variable {statement.name} has no size")
                start = round_up(self.program.local_bytes, statement.align)
                self.program.local_bytes = start + statement.nbytes
                self.names.bound[statement.name] = syntax.LocalAddress(start)
            else:
                self.variable(statement)
        elif isinstance(statement, syntax.Label):
            target = self.names.bound[statement.name]
            if not isinstance(target, syntax.Target):
                self.line = statement.line
                message = f"{statement.name} is declared both as a label and as something else"
                raise self.error(message)
            self.place_label(target.label)
        elif isinstance(statement, syntax.Instruction):
            self.line = statement.line
            self.instruction(statement)

    def declare(self, declaration: syntax.Registers) -> None:
        cls = self.register_class(declaration.type)
        for name, count in declaration.names:
            if count is None:
                self.names.bound[name] = self.new_registers(name, cls)
            else:
                self.names.patterns.append((name, count, cls))

    def register_class(self, type_name: str) -> str:
        if type_name == _WIDE:
            return _WIDE
        if type_name not in TYPES:
            message = f"registers of type .{type_name} are not emulated"
            raise UnsupportedInstruction(message, where=self.place(self.line))
        return TYPES[type_name].register

    def new_registers(self, name: str, cls: str) -> syntax.Register | tuple[syntax.Register, ...]:
        """Create a register, or for one of 128 bits two, the lower half first."""
        if cls == _WIDE:
            return tuple(self.new_register(f"{name}.{half}", "b64") for half in ("low", "high"))
        return self.new_register(name, cls)

    def new_register(self, name: str, cls: str) -> syntax.Register:
        register = syntax.Register(len(self.program.registers), cls, name)
        self.program.registers.append(register)
        return register

    def new_label(self) -> int:
        self.label_count += 1
        return self.label_count

    def place_label(self, label: int) -> None:
        self.program.labels[label] = len(self.program.code)

    # --- instructions -------------------------------------------------------------------

    def instruction(self, node: syntax.Instruction) -> None:
        mnemonic = node.parts[0]
        if mnemonic == "call":
            self.call(node)
        elif mnemonic == "brx":
            self.branch_by_index(node)
        elif mnemonic in ("bar", "barrier") and "red" in node.parts:
            # Threads wait between the two instructions: vote, then read the outcome.
            self.emit(replace(node, operands=node.operands[1:]))
            outcome = node.opcode.replace(".red", ".outcome")
            self.emit(replace(node, opcode=outcome, operands=node.operands[:2]))
        elif mnemonic == "ret" and self.returns is not None:
            self.jump(self.returns, node)
        else:
            self.emit(node)

    def branch_by_index(self, node: syntax.Instruction) -> None:
        """Branch to one label after the other, to the last whatever the index is."""
        index, table = map(self.operand, node.operands)
        targets = self.tables.get(table.label, ()) if isinstance(table, syntax.Target) else ()
        if not targets:
            raise self.error(f"{node.opcode} takes the label of a list of branch targets")
        behind = self.label_behind(node)
        for number, target in enumerate(map(self.name, targets)):
            assert isinstance(target, syntax.Target)
            mine = self.new_register(f"{node.opcode} {number}", "pred")
            compare = replace(node, opcode="setp.eq.u32", guard=None, negated=False, start=-1)
            self.append(compare, (mine, index, syntax.Integer(number)))
            last = number == len(targets) - 1
            self.jump(target.label, replace(compare, guard=None if last else mine))
        self.place_label(behind)

    def label_behind(self, node: syntax.Instruction) -> int:
        """Return a label for the end of what an instruction becomes. Threads for which its guard
        does not hold go there."""
        label = self.new_label()
        if node.guard is not None:
            self.jump(label, replace(node, negated=not node.negated))
        return label

    def jump(self, label: int, node: syntax.Instruction) -> None:
        """Branch to a label under the guard of `node`."""
        self.append(replace(node, opcode="bra"), (syntax.Target(label),))

    def emit(self, node: syntax.Instruction) -> None:
        operands = tuple(self.operand(operand) for operand in node.operands)
        mnemonic = node.parts[0]
        if mnemonic in ("addc", "subc", "madc"):
            operands += (self.name(_CARRY),)
        if "cc" in node.parts:
            results = (*operands[:1], self.name(_CARRY))
            operands = syntax.OperandList(results, "|"), *operands[1:]
        wide = _WIDE in node.parts and any(isinstance(x, syntax.OperandList) for x in operands)
        if wide and mnemonic == "mov":
            # By halves: from or to a register, or a list of two.
            halves = [each.items for each in operands if isinstance(each, syntax.OperandList)]
            if [len(each) for each in halves] != [2, 2]:
                raise self.error(f"{node.opcode} takes registers of 128 bits, or two of 64")
            half = replace(node, opcode=node.opcode.replace(_WIDE, "b64"))
            for pair in zip(*halves, strict=True):
                self.append(half, pair)
        elif wide and mnemonic in ("ld", "st"):
            self.append(replace(node, opcode=node.opcode.replace(f".{_WIDE}", ".v2.b64")), operands)
        else:
            self.append(node, operands)

    def append(self, node: syntax.Instruction, operands: tuple[syntax.Operand, ...]) -> None:
        source = self.module.sources.at(node.line)
        linked = replace(node, operands=operands, guard=self.guard(node), source=source)
        self.program.code.append(linked)

    def guard(self, node: syntax.Instruction) -> syntax.Register | None:
        if not isinstance(node.guard, syntax.Name):
            return node.guard
        register = self.name(node.guard.text)
        if not isinstance(register, syntax.Register) or register.cls != "pred":
            raise self.error(f"{node.guard.text} guards an instruction but is not a predicate")
        return register

    def operand(self, node: syntax.Operand) -> syntax.Operand:
        if isinstance(node, syntax.Name):
            return syntax.Sink() if node.text == "_" else self.name(node.text)
        if isinstance(node, syntax.Sum):
            start = self.name(node.name)
            if isinstance(start, syntax.Integer):
                return syntax.Integer(start.value + node.offset)
            if isinstance(start, (syntax.SymbolAddress, syntax.LocalAddress)):
                return replace(start, offset=start.offset + node.offset)
            raise self.error("only an address can have a constant added to it")
        if isinstance(node, syntax.Memory):
            base = self.name(node.base.text) if isinstance(node.base, syntax.Name) else node.base
            if not isinstance(base, syntax.Address):
                raise self.error(f"{node.base} is not an address")
            coordinates = node.coordinates and tuple(map(self.operand, node.coordinates))
            if isinstance(base, syntax.SymbolAddress) and base.space == "shared":
                base = replace(base, offset=base.offset + node.offset)
                return syntax.Memory(base, 0, coordinates)
            return syntax.Memory(base, node.offset, coordinates)
        if isinstance(node, syntax.OperandList) and node.marks != "()":
            return syntax.OperandList(tuple(map(self.operand, node.items)), node.marks)
        if isinstance(node, syntax.Not) and isinstance(node.operand, syntax.Name):
            register = self.name(node.operand.text)
            if not isinstance(register, syntax.Register):
                raise self.error(f"!{node.operand.text} is not a predicate")
            return syntax.Not(register)
        if isinstance(node, (syntax.Integer, syntax.Real)):
            return node
        raise self.error("a list in parentheses is only allowed in a call")

    def name(self, text: str) -> syntax.Operand:
        bound = self.names.find(text)
        if bound is None:
            covered = self.names.pattern(text)
            if covered is not None:
                scope, cls = covered
                bound = scope.bound[text] = self.new_registers(text, cls)
        if isinstance(bound, tuple):
            return syntax.OperandList(bound)
        if bound is not None:
            return bound
        if text.startswith("%"):
            return syntax.Special(text[1:])
        raise self.error(f"{text} is not declared")

    # --- calls --------------------------------------------------------------------------

    def call(self, node: syntax.Instruction) -> None:
        operands = list(node.operands)
        results = _in_parentheses(operands)
        del operands[:1]  # the callee
        arguments = _in_parentheses(operands)
        name = syntax.callee(node)
        function = self.module.functions.get(name)
        if name in _INTRINSIC_CALLS and (function is None or function.body is None):
            self.emit(replace(node, opcode=name, operands=(*results, *arguments), start=-1))
            return
        if not name or name.startswith("%"):
            message = (
                "calls through pointers (function pointers, virtual functions) are not emulated"
            )
            hint = "call the function by its name, or make it a template parameter"
            raise self.unsupported(message, node, hint)
        if function is None or function.body is None:
            message = f"call of {name}, which has no body in this module"
            hint = "only functions of the same PTX module can be called, by name"
            raise self.unsupported(message, node, hint)
        if name in self.calls:
            hint = "calls are inlined; write the recursion as a loop"
            raise self.unsupported(f"recursion of {name}", node, hint)
        self.inline(function, (*results, *arguments), node)

    def unsupported(self, what: str, node: syntax.Instruction, hint: str) -> UnsupportedInstruction:
        return UnsupportedInstruction(what, where=self.place(node.line, node.text), hint=hint)

    def inline(
        self, function: syntax.Function, given: tuple[syntax.Operand, ...], node: syntax.Instruction
    ) -> None:
        formals = (*function.results, *function.parameters)
        if len(formals) != len(given):
            raise self.error(f"{function.name} takes {len(formals)} arguments, not {len(given)}")
        end = self.label_behind(node)
        bound: dict[str, Binding] = {}
        for formal, actual in zip(formals, given, strict=True):
            value = self.operand(actual)
            if not isinstance(value, syntax.Address):
                raise self.error(f"argument {formal.name} of {function.name} cannot be passed")
            bound[formal.name] = value
        caller, self.names = self.names, Names([*self.names.scopes()][-1])
        self.names.bound.update(bound)
        outer_return, self.returns = self.returns, end
        self.calls.append(function.name)
        assert function.body is not None
        self.scope(function.body)
        self.calls.pop()
        self.returns = outer_return
        self.names = caller
        self.place_label(end)


def _in_parentheses(operands: list[syntax.Operand]) -> tuple[syntax.Operand, ...]:
    """Take the list in parentheses that a call's operands begin with, if there is one."""
    first = operands[0] if operands else None
    if not isinstance(first, syntax.OperandList) or first.marks != "()":
        return ()
    del operands[0]
    return first.items


Binding: TypeAlias = syntax.Address | syntax.Target | tuple[syntax.Register, ...]


class Names:
    """The names of one scope; those of the scopes around it are found through `outer`."""

    def __init__(self, outer: "Names | None" = None) -> None:
        self.outer = outer
        self.bound: dict[str, Binding] = {}
        self.patterns: list[tuple[str, int, str]] = []

    def scopes(self) -> Iterator["Names"]:
        """This scope and those around it."""
        scope: Names | None = self
        while scope is not None:
            yield scope
            scope = scope.outer

    def find(self, name: str) -> Binding | None:
        return next((s.bound[name] for s in self.scopes() if name in s.bound), None)

    def pattern(self, name: str) -> "tuple[Names, str] | None":
        """Return the scope and register class of the declaration like `%r<100>` that covers `name`;
        None if none does."""
        for scope in self.scopes():
            for prefix, count, cls in scope.patterns:
                rest = name[len(prefix) :]
                if name.startswith(prefix) and rest.isdigit() and int(rest) < count:
                    return scope, cls
        return None
