"""The functions of NVRTC, by the names that nvrtc.cpp gives them. They return nvrtcResult."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass, field, replace
from pathlib import Path

from nvfp4.capture.cuda.compilers import CompileError
from nvfp4.capture.cuda.nvrtc import Compiled, Program, callers_file, compile_program
from nvfp4.capture.cuda.registry import entry, store
from nvfp4.capture.cuda.runtime import CudaRuntime
from nvfp4.capture.cuda.source_lines import in_file
from nvfp4.capture.cuda.toolchain import find_toolchain

_INVALID_INPUT, _INVALID_PROGRAM, _COMPILATION = 3, 4, 6
_NO_EXPRESSION_AFTER, _NO_NAME_BEFORE, _UNKNOWN_EXPRESSION = 8, 9, 10
_TEXTS = {
    0: "NVRTC_SUCCESS",
    _INVALID_INPUT: "NVRTC_ERROR_INVALID_INPUT",
    _INVALID_PROGRAM: "NVRTC_ERROR_INVALID_PROGRAM",
    _COMPILATION: "NVRTC_ERROR_COMPILATION",
    _NO_EXPRESSION_AFTER: "NVRTC_ERROR_NO_NAME_EXPRESSIONS_AFTER_COMPILATION",
    _NO_NAME_BEFORE: "NVRTC_ERROR_NO_LOWERED_NAMES_BEFORE_COMPILATION",
    _UNKNOWN_EXPRESSION: "NVRTC_ERROR_NAME_EXPRESSION_NOT_VALID",
}


@dataclass
class _State:
    """Of an nvrtcProgram. folder: of the Python file that the source stands in."""

    program: Program
    folder: Path
    expressions: list[str] = field(default_factory=list)
    compiled: Compiled | None = None
    log: str = ""


_states: dict[int, _State] = {}


@entry()
def nvrtc_version(runtime: CudaRuntime, major: int, minor: int) -> None:
    for target, value in zip((major, minor), find_toolchain().version, strict=True):
        store(target, value, ctypes.c_int32)


@entry()
def nvrtc_arch(runtime: CudaRuntime, archs: int) -> None:
    major, minor = runtime.device.capability
    store(archs, major * 10 + minor, ctypes.c_int32)


@entry()
def nvrtc_create(
    runtime: CudaRuntime,
    handle: int,
    source: int,
    name: int,
    count: int,
    headers: int,
    include_names: int,
) -> int:
    if not source:
        return _INVALID_INPUT
    file = callers_file()
    texts = zip(_strings(include_names, count), _strings(headers, count), strict=True)
    program = Program(
        in_file(_string(source), file),
        _string(name) if name else "default_program",
        runtime.device.arch,
        tuple(texts),
    )
    number = runtime.new_handle()
    _states[number] = _State(program, file.parent)
    store(handle, number)
    return 0


def _string(address: int) -> str:
    return ctypes.string_at(address).decode(errors="replace")


def _strings(address: int, count: int) -> list[str]:
    if not address or not count:
        return []
    return [_string(each) for each in (ctypes.c_uint64 * count).from_address(address)]


@entry()
def nvrtc_destroy(runtime: CudaRuntime, handle: int) -> int:
    number = ctypes.c_uint64.from_address(handle).value
    store(handle, 0)
    return 0 if _states.pop(number, None) else _INVALID_PROGRAM


@entry()
def nvrtc_add_name(runtime: CudaRuntime, handle: int, expression: int) -> int:
    state = _states.get(handle)
    if state is None:
        return _INVALID_PROGRAM
    if state.compiled is not None:
        return _NO_EXPRESSION_AFTER
    state.expressions.append(_string(expression))
    return 0


@entry()
def nvrtc_compile(runtime: CudaRuntime, handle: int, count: int, options: int) -> int:
    state = _states.get(handle)
    if state is None:
        return _INVALID_PROGRAM
    program = replace(
        state.program,
        expressions=tuple(dict.fromkeys(state.expressions)),
        options=tuple(_strings(options, count)),
    )
    try:
        state.compiled = compile_program(program, state.folder)
    except CompileError as error:
        state.log = error.message
        return _COMPILATION
    return 0


@entry()
def nvrtc_lowered_name(runtime: CudaRuntime, handle: int, expression: int, target: int) -> int:
    state = _states.get(handle)
    if state is None:
        return _INVALID_PROGRAM
    if state.compiled is None:
        return _NO_NAME_BEFORE
    lowered = state.compiled.lowered.get(_string(expression))
    if lowered is None:
        return _UNKNOWN_EXPRESSION
    store(target, runtime.text(lowered))
    return 0


@entry()
def nvrtc_code_size(runtime: CudaRuntime, handle: int, size: int) -> int:
    state = _states.get(handle)
    if state is None or state.compiled is None:
        return _INVALID_PROGRAM
    store(size, len(state.compiled.ptx.encode()) + 1)
    return 0


@entry()
def nvrtc_code(runtime: CudaRuntime, handle: int, target: int) -> int:
    state = _states.get(handle)
    if state is None or state.compiled is None:
        return _INVALID_PROGRAM
    _write(target, state.compiled.ptx)
    return 0


@entry()
def nvrtc_log_size(runtime: CudaRuntime, handle: int, size: int) -> int:
    if handle not in _states:
        return _INVALID_PROGRAM
    store(size, len(_states[handle].log.encode()) + 1)
    return 0


@entry()
def nvrtc_log(runtime: CudaRuntime, handle: int, target: int) -> int:
    if handle not in _states:
        return _INVALID_PROGRAM
    _write(target, _states[handle].log)
    return 0


def _write(target: int, text: str) -> None:
    data = text.encode() + b"\0"
    ctypes.memmove(target, data, len(data))


@entry()
def nvrtc_error_text(runtime: CudaRuntime, result: int, target: int) -> None:
    store(target, runtime.text(_TEXTS.get(result, f"NVRTC_ERROR {result}")))
