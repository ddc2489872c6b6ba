"""C callbacks for the CUDA functions that compiled host code names, and their registration.

An engine links a function of TVM-FFI while it is made, before callbacks can be registered with it.
So such a module gets its own CUDA functions, each of which jumps to a callback.
"""

import ctypes
import re
from collections.abc import Callable
from functools import partial
from typing import Any

from nvfp4.capture import stream_order
from nvfp4.capture.codes import CudaError
from nvfp4.capture.cuda import calls
from nvfp4.capture.cutedsl.host import HostRuntime
from nvfp4.capture.kernel import NO_CLUSTER
from nvfp4.records.launch_errors import LaunchRefused, UnsupportedCall
from nvfp4.records.tensormap import encode_tensor_map

I32, U32, U64, PTR = ctypes.c_int32, ctypes.c_uint32, ctypes.c_uint64, ctypes.c_void_p

Body = Callable[..., None]


def _bodies(rt: HostRuntime, texts: tuple[str, ...]) -> dict[str, tuple[tuple[Any, ...], Body]]:
    """Return for each function its C argument types and its body. The C function returns an error
    code."""

    def launch(kernel: int, *rest: int) -> None:
        # rest: three words of the grid and of the block, arguments, bytes of shared memory, stream.
        rt.launch(kernel, rest[0:3], rest[3:6], NO_CLUSTER, *rest[6:9])  # type: ignore[arg-type]

    def assert_success(code: int) -> None:
        if code:
            raise LaunchRefused(f"a CUDA call of the host code failed with error {code}")

    def load_once(state: int, init: int, load_to_device: int, _set_error: int) -> None:
        # TVM-FFI does this before each call. state: where the library's handle is kept.
        if ctypes.c_uint64.from_address(state).value == 0:
            assert_success(ctypes.CFUNCTYPE(I32, PTR)(init)(state))
            assert_success(ctypes.CFUNCTYPE(I32, PTR, I32)(load_to_device)(state, 0))

    def nothing(*_: Any) -> None:
        return

    # The type of the result, which goes to the address in the first argument; the other arguments.
    gives: dict[str, tuple[Any, tuple[Any, ...], Callable[..., int]]] = {
        "_cudaLibraryLoadData": (
            *(PTR, (PTR, PTR, PTR, I32, PTR, PTR, I32)),
            lambda *_: rt.load_library(texts),
        ),
        "_cudaLibraryGetKernel": (
            *(PTR, (PTR, ctypes.c_char_p)),
            lambda library, name: rt.find_kernel(library, name.decode()),
        ),
        "_cudaGetDevice": (I32, (), lambda: 0),
        "_cudaDeviceGetAttribute": (I32, (I32, I32), lambda which, _: rt.device.attribute(which)),
        "_cuKernelGetAttribute": (
            *(I32, (I32, PTR, I32)),
            lambda which, kernel, _: calls.function_attribute(rt, kernel, which),
        ),
        "_cudaOccupancyMaxActiveBlocksPerMultiprocessor": (
            *(I32, (PTR, I32, U64)),
            partial(calls.occupancy, rt),
        ),
    }
    return {
        **{name: ((PTR, *types), _stored(kind, ask)) for name, (kind, types, ask) in gives.items()},
        "_cudaLibraryUnload": ((PTR,), nothing),
        "_cudaSetDevice": ((I32,), nothing),
        "_cudaDeviceSynchronize": ((), stream_order.synchronize),
        "_cudaStreamSynchronize": ((PTR,), stream_order.synchronize),
        "_cudaKernelSetAttributeForDevice": (
            (PTR, I32, I32, I32),
            lambda kernel, which, value, _: calls.set_function_attribute(rt, kernel, which, value),
        ),
        "_cudaFuncSetAttribute": ((PTR, I32, I32), partial(calls.set_function_attribute, rt)),
        "_cudaLaunchKernel": ((PTR, *(U32,) * 6, PTR, U64, PTR), launch),
        "_cudaLaunchKernelEx": ((PTR, PTR, PTR), rt.run_configured),
        "cuda_dialect_assert_success": ((I32,), assert_success),
        "cuda_dialect_init_library_once": ((PTR, PTR, PTR, PTR), load_once),
        "cuda_dialect_unload_library_once": ((PTR,), nothing),
        "_cuTensorMapEncodeTiled": (
            (PTR, I32, U32, PTR, PTR, PTR, PTR, PTR, *(I32,) * 4),
            encode_tensor_map,
        ),
    }


def _stored(kind: Any, ask: Callable[..., int]) -> Body:
    """Return a function whose result goes to the address in the first argument."""

    def store(target: int, *arguments: Any) -> None:
        kind.from_address(target).value = ask(*arguments)

    return store


def _guarded(body: Body, runtime: HostRuntime) -> Callable[..., int]:
    """`body` with an error code as its result; an exception waits in the runtime."""

    def call(*args: Any) -> int:
        try:
            body(*(0 if arg is None else arg for arg in args))
        except CudaError as error:
            return runtime.keep(LaunchRefused(error.message))
        except BaseException as error:
            return runtime.keep(error)
        return 0

    return call


def _refuse(name: str) -> Body:
    def refuse(*_: Any) -> None:
        message = f"host code calls {name.lstrip('_')}, which is not captured"
        hint = "launches, kernel and device attributes and tensor maps are captured"
        raise UnsupportedCall(message, hint=hint)

    return refuse


def make_callbacks(
    runtime: HostRuntime, texts: tuple[str, ...], declared: list[str]
) -> dict[str, Any]:
    """Callbacks for one compiled function whose kernels' PTX is `texts`.

    declared: the external functions its host code names. CUDA functions among them that are not
    emulated get a callback that says so. The callbacks must outlive the compiled code.
    """
    bodies = _bodies(runtime, texts)
    for name in declared:
        if name.startswith(("_cu", "cuda_dialect")) and name not in bodies:
            bodies[name] = ((), _refuse(name))
    return {
        name: ctypes.CFUNCTYPE(I32, *arguments)(_guarded(body, runtime))
        for name, (arguments, body) in bodies.items()
    }


_SIGNATURE = re.compile(r"!llvm\.func<(i32|void) \((.*)\)>")


def declared_functions(module: Any) -> dict[str, Any]:
    """Return the functions without a body of a module in MLIR's LLVM dialect, by name."""
    return {
        op.attributes["sym_name"].value: op
        for op in module.body.operations
        if op.operation.name == "llvm.func" and not op.operation.regions[0].blocks
    }


def define(module: Any, callbacks: dict[str, Any]) -> None:
    """Give each declared function that has a callback a body that calls it and returns its code.

    Functions that return nothing do nothing: they may run when Python has ended. callbacks: ctypes
    functions that outlive the compiled code.
    """
    from cutlass._mlir import ir

    declared = declared_functions(module)
    with module.context, ir.Location.unknown():
        for name in declared.keys() & callbacks.keys():
            address = ctypes.cast(callbacks[name], ctypes.c_void_p).value or 0
            text = _definition(name, str(declared[name].attributes["function_type"]), address)
            if text is not None:
                declared[name].operation.erase()
                module.body.append(ir.Operation.parse(text))


def _definition(name: str, signature: str, address: int) -> str | None:
    """Return the text of a function that calls the one at an address.

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
