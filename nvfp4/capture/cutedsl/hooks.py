"""Hooks in CuTe DSL: keep the PTX of each compiled function, and run its host code without CUDA.

Nothing here touches user code. Compiling is left as it is, but for one more option that
writes the PTX; the execution engine gets our CUDA functions before its code is linked.
"""

import ctypes
import re
import tempfile
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from nvfp4.capture.activity import busy
from nvfp4.capture.cuda.runtime import checked
from nvfp4.capture.cutedsl import versions
from nvfp4.capture.cutedsl.callbacks import declared_functions, define, make_callbacks
from nvfp4.capture.cutedsl.host import HostRuntime
from nvfp4.capture.patches import Patches
from nvfp4.capture.untimed import refuse_timing

_PTX_ATTRIBUTE = "captured_ptx"
_TIMING = {"benchmark", "tune", "autotune_jit"}
"""Functions of cutlass.testing that measure time."""
_DUMP_OPTION = re.compile(r"dump-ptx-path='([^']*)'")
# PTX texts of several modules in one attribute; no text contains a NUL.
_SEPARATOR = "\0"


def install(runtime: HostRuntime) -> Patches:
    """Hook CuTe DSL so that what it compiles and launches from now on goes to `runtime`.

    Raises the errors of `compiling_for`.
    """
    return compiling_for(runtime.device.arch, lambda patches: _install(patches, runtime))


def compiling_for(arch: str, install_more: Callable[[Patches], None]) -> Patches:
    """Hook CuTe DSL so that it compiles for `arch` from now on and keeps the PTX.

    Raises ImportError without CuTe DSL, and UnsupportedVersion, which is an ImportError, for a
    version that does not fit.
    """
    versions.check()
    patches = Patches()
    patches.set_variable("CUTE_DSL_ARCH", arch)
    # Modules from the cache on disk were compiled without the PTX.
    patches.set_variable("CUTE_DSL_DISABLE_FILE_CACHING", "1")
    # .file and .loc name the user's Python; the instructions stay the same.
    patches.set_variable("CUTE_DSL_LINEINFO", "1")

    try:
        from cutlass.base_dsl.compiler import Compiler

        for dsl in versions.dsl_objects():
            patches.replace(dsl.envar, versions.architecture_name(dsl.envar), lambda _: arch)
            patches.replace(dsl.envar, "disable_file_caching", lambda _: True)
            patches.replace(dsl.envar, "lineinfo", lambda _: True)
        patches.replace(Compiler, "compile", _keeping_ptx)
        _take_descriptors(patches)
        install_more(patches)
    except BaseException as error:
        patches.undo()
        if type(error) in (AttributeError, ImportError, ModuleNotFoundError):
            raise versions.unsupported(str(error)) from error
        raise
    return patches


_DESCRIPTOR_BYTES = 128


def _take_descriptors(patches: Patches) -> None:
    """Accept pointers to tensor maps as versions before 4.6 did.

    Later versions refuse pointers whose type does not show the alignment; the emulator checks the
    address itself.
    """
    import cutlass.cute as cute
    from cutlass.cute.nvgpu import cpasync

    def aligned(pointer: Any) -> Any:
        if pointer.alignment >= _DESCRIPTOR_BYTES:
            return pointer
        address, space = pointer.toint(), pointer.memspace
        return cute.make_ptr(pointer.dtype, address, space, assumed_align=_DESCRIPTOR_BYTES)

    def last_aligned(function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **options: Any) -> Any:
            *others, pointer = arguments
            return function(*others, aligned(pointer), **options)

        return call

    for name in ("copy_tensormap", "update_tma_descriptor"):
        if hasattr(cpasync, name):
            patches.replace(cpasync, name, last_aligned)


def _install(patches: Patches, runtime: HostRuntime) -> None:
    from cutlass.base_dsl.compiler import Compiler
    from cutlass.base_dsl.dsl import BaseDSL
    from cutlass.base_dsl.jit_executor import JitExecutor
    from cutlass.cutlass_dsl.cuda_jit_executor import CudaDialectJitCompiledFunction

    raising = partial(checked, runtime=runtime)

    def callbacks(texts: tuple[str, ...], declared: list[str], _: Any) -> dict[str, Any]:
        return make_callbacks(runtime, texts, declared)

    def defined(made: dict[str, Any]) -> None:
        runtime.held.append(made)
        for function in versions.tvm_ffi_functions():
            patches.override(function, "__call__", raising)

    driver_check = versions.driver_check(Compiler)
    if driver_check:
        patches.replace(Compiler, driver_check, lambda _: _nothing)
    patches.replace(BaseDSL, "generate_mlir", busy("compiling"))
    patches.replace(Compiler, "jit", partial(linked_to, callbacks, defined))
    patches.replace(JitExecutor, "run_compiled_program", raising)
    patches.replace(CudaDialectJitCompiledFunction, "to", raising)  # which loads the code
    patches.replace(CudaDialectJitCompiledFunction, "num_devices", lambda _: property(lambda _: 1))
    _replace_driver_queries(patches, runtime)
    for owner in versions.testing_modules():
        for name in _TIMING & vars(owner).keys():
            patches.set(owner, name, refuse_timing(f"cutlass.testing.{name}"))


def _nothing(*_: Any, **__: Any) -> None:
    return None


def _keeping_ptx(original: Callable[..., Any]) -> Callable[..., Any]:
    """Compiler.compile that leaves the PTX as an attribute of the compiled module."""

    def compile_and_keep(self: Any, module: Any, pipeline: str, *args: Any, **kwargs: Any) -> Any:
        with tempfile.TemporaryDirectory(prefix="captured-ptx-") as directory:
            asked = _DUMP_OPTION.search(pipeline)
            option = f"cute-to-nvvm{{dump-ptx-path='{directory}/module' "
            pipeline = _DUMP_OPTION.sub("", pipeline).replace("cute-to-nvvm{", option, 1)
            compiled = original(self, module, pipeline, *args, **kwargs)
            texts = []
            for file in sorted(Path(directory).iterdir()):
                texts.append(file.read_text())
                with suppress(OSError):  # as where the working folder is read-only
                    if asked:
                        Path(asked[1] + file.name.removeprefix("module")).write_text(texts[-1])
        from cutlass._mlir import ir

        finished = versions.compiled_module(module, compiled)
        with finished.context:
            joined = ir.StringAttr.get(_SEPARATOR.join(texts))
            finished.operation.attributes[_PTX_ATTRIBUTE] = joined
        return compiled

    return compile_and_keep


# Callbacks from the PTX of a compiled function, the external functions that its host code names,
# and the paths of the libraries it is linked to.
Callbacks = Callable[[tuple[str, ...], list[str], Sequence[str]], dict[str, Any]]


def linked_to(
    make: Callbacks, defined: Callable[[dict[str, Any]], None], original: Callable[..., Any]
) -> Callable[..., Any]:
    """Compiler.jit whose engine finds our functions before those of the libraries.

    defined: gets callbacks that were put into a module of TVM-FFI, which may outlive its engine.
    """

    def jit(
        self: Any, module: Any, opt_level: int = 2, shared_libs: Sequence[str] = (), **kwargs: Any
    ) -> Any:
        attributes = module.operation.attributes
        text = attributes[_PTX_ATTRIBUTE].value if _PTX_ATTRIBUTE in attributes else ""
        declared = list(declared_functions(module))
        callbacks = make(tuple(text.split(_SEPARATOR)), declared, shared_libs)
        if any(name.startswith("TVMFFI") for name in declared):
            # The engine links such a function while it is made.
            define(module, callbacks)
            defined(callbacks)
        engine = original(self, module, opt_level, shared_libs, **kwargs)
        for name, callback in callbacks.items():
            engine.raw_register_runtime(name, ctypes.cast(callback, ctypes.c_void_p))
        # The compiled code calls them for as long as the engine lives.
        engine._captured_functions = callbacks
        return engine

    return jit


def _replace_driver_queries(patches: Patches, runtime: HostRuntime) -> None:
    """Helpers of CuTe DSL that would ask the driver: contexts, streams, hardware numbers."""
    import cutlass.base_dsl.runtime.cuda as cuda_helpers
    import cutlass.torch
    import cutlass.utils.hardware_info as hardware
    from cuda.bindings import driver

    device = runtime.device

    def stream(*_: Any) -> Any:
        return driver.CUstream(0)

    answers: dict[Any, dict[str, Any]] = {
        cuda_helpers: {
            # The driver's attributes have the runtime's numbers.
            "get_device_attribute": lambda attribute, *_: device.attribute(int(attribute)),
            "get_compute_capability_major_minor": lambda *_: device.capability,
        },
        cutlass.torch: {"default_stream": stream, "current_stream": stream},
        hardware.HardwareInfo: {
            "__init__": _nothing,
            "get_max_active_clusters": lambda _, size, *__: device.multiprocessors // size,
            "get_l2_cache_size_in_bytes": lambda _: device.l2_bytes,
            "get_device_multiprocessor_count": lambda _: device.multiprocessors,
        },
    }
    helpers = {
        **dict.fromkeys(("initialize_cuda_context", "stream_sync", "stream_destroy"), _nothing),
        "stream_create": stream,
    }
    for module in versions.helper_modules():
        known = {name: each for name, each in helpers.items() if hasattr(module, name)}
        answers[module] = {**known, **answers.get(module, {})}
    for owner, replacements in answers.items():
        for name, answer in replacements.items():
            patches.replace(owner, name, partial(lambda new, _: new, answer))
