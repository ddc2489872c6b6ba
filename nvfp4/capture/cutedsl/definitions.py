"""Bodies for the CUDA functions that a compiled module only declares.

An engine links a function of TVM-FFI while it is made, before callbacks can be registered with it.
So the module gets its own CUDA functions, each of which jumps to a callback.
"""

from __future__ import annotations

import ctypes
import re
from typing import Any

_SIGNATURE = re.compile(r"!llvm\.func<(i32|void) \((.*)\)>")


def declared_functions(module: Any) -> dict[str, Any]:
    """The functions without a body of a module in MLIR's LLVM dialect, by name."""
    return {
        op.attributes["sym_name"].value: op
        for op in module.body.operations
        if op.operation.name == "llvm.func" and not op.operation.regions[0].blocks
    }


def define(module: Any, callbacks: dict[str, Any]) -> None:
    """Give declared functions that have a callback and return a code a body that calls it.

    Those that return nothing do nothing: they may run when Python has ended. callbacks: ctypes
    functions that outlive the compiled code.
    """
    from cutlass._mlir import ir

    declared = declared_functions(module)
    with module.context, ir.Location.unknown():
        for name in declared.keys() & callbacks.keys():
            address = ctypes.cast(callbacks[name], ctypes.c_void_p).value or 0
            signature = str(declared[name].attributes["function_type"])
            text = _definition(name, signature, address)
            if text is not None:
                declared[name].operation.erase()
                module.body.append(ir.Operation.parse(text))


def _definition(name: str, signature: str, address: int) -> str | None:
    """The text of a function that calls the one at an address.

    signature: such as `!llvm.func<i32 (ptr, i64)>`. None if the result is something else.
    """
    found = _SIGNATURE.fullmatch(signature)
    if found is None:
        return None
    result, listed = found.groups()
    types = ["!llvm.ptr" if each == "ptr" else each for each in listed.split(", ") if each]
    arguments = [f"%arg{i}" for i in range(len(types))]
    formals = ", ".join(f"{a}: {t}" for a, t in zip(arguments, types, strict=True))
    if result == "void":
        return f"llvm.func internal @{name}({formals}) {{ llvm.return }}"
    call = f"llvm.call %function({', '.join(arguments)}) : !llvm.ptr, ({', '.join(types)}) -> i32"
    return f"""llvm.func internal @{name}({formals}) -> i32 {{
        %address = llvm.mlir.constant({address} : i64) : i64
        %function = llvm.inttoptr %address : i64 to !llvm.ptr
        %result = {call}
        llvm.return %result : i32
    }}"""
