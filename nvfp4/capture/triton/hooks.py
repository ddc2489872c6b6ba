"""Replacements in Triton while its launches are captured."""

from collections.abc import Callable
from functools import partial
from typing import Any, NoReturn

from nvfp4.capture.activity import busy
from nvfp4.capture.patches import Patches, UnsupportedVersion, version_numbers
from nvfp4.capture.session import Session
from nvfp4.capture.triton import autotuning
from nvfp4.capture.untimed import refuse_timing

OLDEST = "3.5"
_LINE_INFO_OFF = "TRITON_DISABLE_LINE_INFO"


def install(session: Session) -> Patches:
    """Replace Triton's driver and its timing functions. Raises ImportError without Triton."""
    import triton
    from triton.runtime import driver as holder

    patches = Patches()
    # Read when something is compiled; it is part of the key of Triton's cache.
    patches.set_variable(_LINE_INFO_OFF, "0")
    try:
        if version_numbers(triton.__version__) < version_numbers(OLDEST):
            raise AttributeError(f"it is older than {OLDEST}")
        active: Any = _replace(patches, session)
    except (AttributeError, ImportError) as error:
        active = _Refusing(unsupported(triton.__version__, str(error)))
    patches.set(holder, "_active", active)
    return patches


def unsupported(version: str, reason: str) -> UnsupportedVersion:
    """Return the error that names the versions that are supported."""
    return UnsupportedVersion(
        f"Triton {version} cannot be intercepted: {reason}",
        hint=f"{OLDEST} and later can: python -m pip install --upgrade triton",
    )


def _replace(patches: Patches, session: Session) -> Any:
    """Patch Triton and return the driver to use. Raises AttributeError if this version of Triton
    lacks something."""
    import triton.testing
    from triton.compiler.compiler import CompiledKernel
    from triton.runtime.autotuner import Autotuner
    from triton.runtime.jit import JITFunction

    from nvfp4.capture.triton.driver import Driver

    driver = Driver(session)
    patches.replace(JITFunction, "_do_compile", busy("compiling"))
    patches.replace(CompiledKernel, "_init_handles", partial(_told, driver.utils.loading))
    patches.replace(Autotuner, "_bench", partial(autotuning.try_once, session))
    patches.replace(Autotuner, "run", partial(autotuning.with_note, session))
    patches.set(Autotuner, "check_disk_cache", autotuning.without_disk)
    for name in [each for each in vars(triton.testing) if each.startswith("do_bench")]:
        patches.set(triton.testing, name, refuse_timing(f"triton.testing.{name}"))
    return driver


def _told(loading: Any, original: Callable[[Any], None]) -> Callable[[Any], None]:
    """Wrap CompiledKernel._init_handles so that it tells the driver which kernel it loads."""

    def initialise(self: Any) -> None:
        loading.kernel = self
        try:
            original(self)
        finally:
            del loading.kernel

    return initialise


class _Refusing:
    """A driver whose every function raises the reason why it cannot work."""

    def __init__(self, error: UnsupportedVersion) -> None:
        self.__error = error

    def __getattr__(self, name: str) -> NoReturn:
        raise self.__error
