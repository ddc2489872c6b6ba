"""The functions of NVRTC, by the names that nvrtc.cpp gives them. They return nvrtcResult."""

import ctypes
from dataclasses import dataclass, field, replace
from enum import IntEnum
from pathlib import Path

from nvfp4.capture.cuda.compilers import CompileError
from nvfp4.capture.cuda.entries import Returned, entry, store, text_at
from nvfp4.capture.cuda.nvrtc import Compiled, Program, compile_program
from nvfp4.capture.cuda.runtime import CudaRuntime
from nvfp4.capture.cuda.source_lines import in_file
from nvfp4.capture.cuda.toolchain import find_toolchain
from nvfp4.capture.frames import users_file


class _Result(IntEnum):
    """nvrtcResult."""

    NVRTC_SUCCESS = 0
    NVRTC_ERROR_INVALID_INPUT = 3
    NVRTC_ERROR_INVALID_PROGRAM = 4
    NVRTC_ERROR_COMPILATION = 6
    NVRTC_ERROR_NO_NAME_EXPRESSIONS_AFTER_COMPILATION = 8
    NVRTC_ERROR_NO_LOWERED_NAMES_BEFORE_COMPILATION = 9
    NVRTC_ERROR_NAME_EXPRESSION_NOT_VALID = 10


@dataclass
class _State:
    """Of an nvrtcProgram. folder: of the Python file that the source stands in."""

    program: Program
    folder: Path
    expressions: list[str] = field(default_factory=list)
    compiled: Compiled | None = None
    log: str = ""


_states: dict[int, _State] = {}


def _state(handle: int) -> _State:
    if handle not in _states:
        raise Returned(_Result.NVRTC_ERROR_INVALID_PROGRAM)
    return _states[handle]


def _ptx(handle: int) -> str:
    compiled = _state(handle).compiled
    if compiled is None:
        raise Returned(_Result.NVRTC_ERROR_INVALID_PROGRAM)
    return compiled.ptx


@entry()
def nvrtc_version(runtime: CudaRuntime, major: int, minor: int) -> None:
    for target, value in zip((major, minor), find_toolchain().version, strict=True):
        store(target, value, ctypes.c_int32)


@entry(gives=ctypes.c_int32)
def nvrtc_arch(runtime: CudaRuntime) -> int:
    major, minor = runtime.device.capability
    return major * 10 + minor


@entry(gives=ctypes.c_uint64)
def nvrtc_create(
    runtime: CudaRuntime,
    source: int,
    name: str,
    count: int,
    headers: int,
    include_names: int,
) -> int:
    if not source:
        raise Returned(_Result.NVRTC_ERROR_INVALID_INPUT)
    file = users_file()
    program = Program(
        in_file(text_at(source), file),
        name or "default_program",
        tuple(zip(_strings(include_names, count), _strings(headers, count), strict=True)),
    )
    handle = runtime.new_handle()
    _states[handle] = _State(program, file.parent)
    return handle


def _strings(address: int, count: int) -> list[str]:
    if not address or not count:
        return []
    return [text_at(each) for each in (ctypes.c_uint64 * count).from_address(address)]


@entry()
def nvrtc_destroy(runtime: CudaRuntime, handle: int) -> int:
    number = ctypes.c_uint64.from_address(handle).value
    store(handle, 0)
    return 0 if _states.pop(number, None) else _Result.NVRTC_ERROR_INVALID_PROGRAM


@entry()
def nvrtc_add_name(runtime: CudaRuntime, handle: int, expression: str) -> None:
    state = _state(handle)
    if state.compiled is not None:
        raise Returned(_Result.NVRTC_ERROR_NO_NAME_EXPRESSIONS_AFTER_COMPILATION)
    state.expressions.append(expression)


@entry()
def nvrtc_compile(runtime: CudaRuntime, handle: int, count: int, options: int) -> None:
    state = _state(handle)
    program = replace(
        state.program,
        expressions=tuple(dict.fromkeys(state.expressions)),
        options=tuple(_strings(options, count)),
    )
    try:
        state.compiled = compile_program(program, state.folder)
    except CompileError as error:
        state.log = error.message
        raise Returned(_Result.NVRTC_ERROR_COMPILATION) from None


@entry(gives=ctypes.c_uint64)
def nvrtc_lowered_name(runtime: CudaRuntime, handle: int, expression: str) -> int:
    compiled = _state(handle).compiled
    if compiled is None:
        raise Returned(_Result.NVRTC_ERROR_NO_LOWERED_NAMES_BEFORE_COMPILATION)
    if expression not in compiled.lowered:
        raise Returned(_Result.NVRTC_ERROR_NAME_EXPRESSION_NOT_VALID)
    return runtime.text(compiled.lowered[expression])


@entry(gives=ctypes.c_uint64)
def nvrtc_code_size(runtime: CudaRuntime, handle: int) -> int:
    return len(_ptx(handle).encode()) + 1


@entry()
def nvrtc_code(runtime: CudaRuntime, handle: int, target: int) -> None:
    _write(target, _ptx(handle))


@entry(gives=ctypes.c_uint64)
def nvrtc_log_size(runtime: CudaRuntime, handle: int) -> int:
    return len(_state(handle).log.encode()) + 1


@entry()
def nvrtc_log(runtime: CudaRuntime, handle: int, target: int) -> None:
    _write(target, _state(handle).log)


def _write(target: int, text: str) -> None:
    data = text.encode() + b"\0"
    ctypes.memmove(target, data, len(data))


@entry(gives=ctypes.c_uint64)
def nvrtc_error_text(runtime: CudaRuntime, result: int) -> int:
    known = {each.value: each.name for each in _Result}
    return runtime.text(known.get(result, f"NVRTC_ERROR {result}"))
