"""cuda.bindings.runtime, and cuda.cudart with it, on the library that stands in for the runtime's.

Their own library is linked into them and wants a driver. So each function that ours has calls it by
ctypes, and returns what the binding would: the error, then the values that C writes to addresses.
"""

import ctypes
import functools
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

from nvfp4.capture.cuda.compilers import library
from nvfp4.capture.cuda.runtime import RUNTIME, checked
from nvfp4.capture.frames import is_installed
from nvfp4.capture.untimed import no_time
from nvfp4.records.launch_errors import UnsupportedCall

Function = Callable[..., tuple[Any, ...]]
Put = Callable[[Any, str, Any], None]

_NO_DRIVER = (35, 36)  # cudaErrorInsufficientDriver, cudaErrorCallRequiresNewerDriver

_PROTOTYPE = re.compile(r"^cudaError_t (cuda\w+)\(([^)]*)\) \{", re.MULTILINE)
_PARAMETER = re.compile(r"((?:const )?(?:unsigned long long|\w+) ?\**) ?\w*")
_OUTPUTS: dict[str, type[Any]] = {
    "void **": ctypes.c_uint64,
    "size_t *": ctypes.c_uint64,
    "int *": ctypes.c_int32,
    "unsigned *": ctypes.c_uint32,
    "cudaStream_t *": ctypes.c_uint64,
    "cudaEvent_t *": ctypes.c_uint64,
    "cudaGraph_t *": ctypes.c_uint64,
    "cudaGraphExec_t *": ctypes.c_uint64,
    "cudaMemPool_t *": ctypes.c_uint64,
    "cudaStreamCaptureStatus *": ctypes.c_int32,
}
"""What C writes to an address. A binding gives CUDA's own types the class of that name."""
_NOT_WORDS = re.compile(
    r"cuda(?:\w+Fn_t|\w+Callback_t|\w+Attribute|MemPoolAttr|Launch\w+) ?\**|dim3 |cuda\w+ \*"
)
"""Types of parameters that a binding takes in a form of its own."""

_PROPERTIES = {
    "sharedMemPerBlock": 8, "sharedMemPerBlockOptin": 97, "sharedMemPerMultiprocessor": 81,
    "reservedSharedMemPerBlock": 111, "regsPerBlock": 12, "regsPerMultiprocessor": 82,
    "warpSize": 10, "maxThreadsPerBlock": 1, "maxThreadsPerMultiProcessor": 39,
    "maxBlocksPerMultiProcessor": 106, "multiProcessorCount": 16, "l2CacheSize": 38,
    "major": 75, "minor": 76, "totalConstMem": 9, "cooperativeLaunch": 95,
    "concurrentKernels": 31, "asyncEngineCount": 40, "unifiedAddressing": 41, "managedMemory": 83,
    "memoryBusWidth": 37, "persistingL2CacheMaxSize": 108, "clusterLaunch": 120,
}  # fmt: skip
"""Fields of cudaDeviceProp, and the device attributes that they are."""


def adapt(put: Put) -> None:
    """Replace the functions of cuda.bindings.runtime for callers that are no package."""
    from cuda.bindings import runtime

    ours = {name: _by_ctypes(runtime, name, types) for name, types in _signatures()}
    ours |= {
        "cudaEventElapsedTime": refuse_time,
        "cudaGetDeviceProperties": functools.partial(_properties, runtime),
        "cudaPointerGetAttributes": functools.partial(_pointer_attributes, runtime),
        "cudaGetErrorString": functools.partial(_error_text, runtime, "cudaGetErrorString"),
        "cudaGetErrorName": functools.partial(_error_text, runtime, "cudaGetErrorName"),
    }
    for name, value in list(vars(runtime).items()):
        if name.startswith("cuda") and callable(value) and not isinstance(value, type):
            put(runtime, name, _for_users(value, ours.get(name)))


def refuse_time(*_: Any) -> tuple[Any, ...]:
    """Raises NeedsGpu: an error code would look like a mistake of the caller's."""
    raise no_time()


def _signatures() -> Iterator[tuple[str, list[str]]]:
    """The functions of runtime.cpp and the types of their parameters."""
    text = Path(__file__).with_name("runtime.cpp").read_text(encoding="utf-8")
    for name, listed in _PROTOTYPE.findall(text):
        types = [found[1] for found in map(_PARAMETER.fullmatch, _split(listed)) if found]
        if not any(each not in _OUTPUTS and _NOT_WORDS.fullmatch(each) for each in types):
            yield name, types


def _split(parameters: str) -> list[str]:
    return [" ".join(each.split()) for each in parameters.split(",") if each.strip()]


def _for_users(original: Function, ours: Function | None) -> Function:
    """The function as a submission gets it. Packages look for a GPU with the original."""

    @functools.wraps(original)
    def call(*args: Any, **kwargs: Any) -> tuple[Any, ...]:
        if is_installed(sys._getframe(1).f_code.co_filename):
            return original(*args, **kwargs)
        if ours is not None:
            return ours(*args, *kwargs.values())
        result = original(*args, **kwargs)
        if isinstance(result, tuple) and int(result[0]) in _NO_DRIVER:
            raise UnsupportedCall(
                f"{original.__name__} of cuda.bindings.runtime is not emulated",
                hint="memory, streams, events, graphs and the device's properties are",
            )
        return result

    return call


def _by_ctypes(runtime: ModuleType, name: str, types: list[str]) -> Function:
    """The binding of a function of our library."""
    wanted = sum(each not in _OUTPUTS for each in types)

    @checked
    def call(*given: Any) -> tuple[Any, ...]:
        if len(given) > wanted:
            raise TypeError(f"{name}() takes {wanted} arguments, {len(given)} are given")
        left = iter([*given, *[0] * (wanted - len(given))])  # flags that have a default
        words: list[Any] = []
        outputs: list[tuple[Any, Any]] = []
        for each in types:
            if each not in _OUTPUTS:
                words.append(ctypes.c_uint64(_word(next(left))))
                continue
            place = _OUTPUTS[each]()
            words.append(ctypes.byref(place))
            outputs.append((place, getattr(runtime, each.rstrip(" *"), int)))
        error = runtime.cudaError_t(getattr(_library(), name)(*words))
        if int(error):
            return (error, *[None] * len(outputs))
        return (error, *(cls(place.value) for place, cls in outputs))

    return call


@functools.cache
def _library() -> ctypes.CDLL:
    return ctypes.CDLL(str(library("cudart")))


def _word(value: Any) -> int:
    """An argument as C takes it: a number, a handle, or the address of a buffer."""
    if value is None:
        return 0
    if hasattr(value, "getPtr") and not hasattr(value, "__int__"):
        return int(value.getPtr())
    if hasattr(value, "__int__") and not hasattr(value, "__array_interface__"):
        return int(value) & (1 << 64) - 1
    if hasattr(value, "__array_interface__"):
        return int(value.__array_interface__["data"][0])
    view = memoryview(value)
    if not view.readonly:
        return ctypes.addressof(ctypes.c_char.from_buffer(view))
    # A copy from constant bytes: they live as long as the call.
    return ctypes.cast(ctypes.c_char_p(bytes(view)), ctypes.c_void_p).value or 0


def _properties(runtime: ModuleType, device: int = 0) -> tuple[Any, ...]:
    """cudaGetDeviceProperties. The binding's structure is that of its own version of CUDA."""
    found = runtime.cudaDeviceProp()
    if device:
        return runtime.cudaError_t.cudaErrorInvalidDevice, None
    attributes = RUNTIME.device.attributes
    found.name = RUNTIME.device.name.encode().ljust(256, b"\0")
    found.totalGlobalMem = RUNTIME.device.memory_bytes
    found.maxThreadsDim = [attributes[number] for number in (2, 3, 4)]
    found.maxGridSize = [attributes[number] for number in (5, 6, 7)]
    for name, number in _PROPERTIES.items():
        if hasattr(found, name):
            setattr(found, name, attributes[number])
    return runtime.cudaError_t.cudaSuccess, found


def _pointer_attributes(runtime: ModuleType, pointer: Any) -> tuple[Any, ...]:
    found = runtime.cudaPointerAttributes()
    kinds, address = runtime.cudaMemoryType, _word(pointer)
    found.type = kinds.cudaMemoryTypeUnregistered
    if RUNTIME.buffer_at(address) is not None:
        found.type, found.devicePointer = kinds.cudaMemoryTypeDevice, address
    return runtime.cudaError_t.cudaSuccess, found


def _error_text(runtime: ModuleType, name: str, error: Any) -> tuple[Any, ...]:
    function = getattr(_library(), name)
    function.restype = ctypes.c_char_p
    return runtime.cudaError_t.cudaSuccess, function(ctypes.c_uint64(int(error)))
