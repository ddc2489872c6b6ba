"""Differences between versions of nvidia-cutlass-dsl, a name for each.

`scripts/version_matrix.py` tests the versions.
"""

import importlib.metadata
from typing import Any

from nvfp4.capture.patches import UnsupportedVersion, version_numbers

TRIED = ("4.3.5", "4.4.2", "4.5.2", "4.6.3", "4.7.1", "4.8.1")
OLDEST, NEWEST = TRIED[0], TRIED[-1]


def installed() -> str:
    """Return the version of nvidia-cutlass-dsl. Raises ImportError without it."""
    try:
        return importlib.metadata.version("nvidia-cutlass-dsl")
    except importlib.metadata.PackageNotFoundError:
        raise ImportError("nvidia-cutlass-dsl is not installed") from None


def unsupported(reason: str) -> UnsupportedVersion:
    """Return the error that names the versions that are supported."""
    return UnsupportedVersion(
        f"nvidia-cutlass-dsl {installed()} cannot be intercepted: {reason}",
        hint=f"{', '.join(TRIED)} can: python -m pip install nvidia-cutlass-dsl=={NEWEST}",
    )


def check() -> None:
    """Raise UnsupportedVersion for a version before 4.3.5. Versions later than the newest tested
    one may work."""
    if version_numbers(installed()) < version_numbers(OLDEST):
        raise unsupported(f"it is older than {OLDEST}")


def dsl_objects() -> list[Any]:
    """Return the DSL objects of this process, which read the environment when created."""
    from cutlass.base_dsl.dsl import DSLSingletonMeta  # before 4.3.2 there was none

    return list(DSLSingletonMeta._instances.values())


def architecture_name(environment: Any) -> str:
    """Return the attribute with the architecture; from 4.6 on a property fills it when first
    asked."""
    return "_arch" if hasattr(environment, "_arch") else "arch"


def compiled_module(module: Any, result: Any) -> Any:
    """Return the module that Compiler.compile leaves; before 4.7 it returns None and works in
    place."""
    return module if result is None else result


def driver_check(compiler: Any) -> str | None:
    """Return the method that asks for a driver before it links; there was one until 4.4."""
    name = "_check_cuda_dependencies_once"
    return name if hasattr(compiler, name) else None


def helper_modules() -> list[Any]:
    """Return the modules with helpers that ask the driver; some versions have one under two
    names."""
    import cutlass
    import cutlass.base_dsl.runtime.cuda as helpers

    second = getattr(cutlass, "cuda", helpers)
    return [helpers] if second is helpers else [helpers, second]


def testing_modules() -> list[Any]:
    """Return the modules with functions that time kernels; later versions have one beside
    cute's."""
    import cutlass.cute.testing

    second = getattr(cutlass, "testing", cutlass.cute.testing)
    return list({id(module): module for module in (cutlass.cute.testing, second)}.values())


def tvm_ffi_functions() -> list[type]:
    """Return the classes of functions that were compiled with --enable-tvm-ffi."""
    from cutlass.cutlass_dsl import tvm_ffi_provider

    names = ("TVMFFIJitCompiledFunction", "TVMFFIJitCompiledFunctionWithKwargs")
    return [getattr(tvm_ffi_provider, name) for name in names if hasattr(tvm_ffi_provider, name)]
