"""The process that builds a submission's CUDA C++ before a GPU is free for its judgement.

    python -m nvfp4.worker.building SCRIPT CAPABILITY

It imports the submission until torch has built what that asks for, into the cache that the
judgement finds. No GPU is in its reach; CAPABILITY, such as 9.0, says for which one to build. The
current folder is the script's.
"""

import contextlib
import os
import runpy
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from nvfp4.records.options import options_of_environment
from nvfp4.sandbox.confinement import confine
from nvfp4.worker.imports import import_packages_only

_NICEST = 19
"""The lowest priority, because a call may be timed at the same time."""


def build_inside(script: Path, capability: tuple[int, int]) -> None:
    """Import the script, confined to its folder; call it if the import has built nothing."""
    os.nice(_NICEST)
    confine()
    # Only now: torch starts threads, and a thread keeps the rights it was started with.
    import torch

    from nvfp4.retarget import extensions

    options = options_of_environment()
    # As if there were a GPU, so that torch builds with the same commands as in the judgement.
    torch.cuda.is_available = lambda: True
    torch.cuda.device_count = lambda: 1
    torch.cuda.current_device = lambda: 0
    torch.cuda.get_device_capability = lambda device=None: capability
    extensions.start(options.retarget, options.arch, lambda: capability)
    import_packages_only()
    with contextlib.suppress(Exception, SystemExit):  # which its judgement tells
        names = runpy.run_path(str(script), run_name="submission")
        builder = sys.modules.get("torch.utils.cpp_extension")
        if not (builder and builder.JIT_EXTENSION_VERSIONER.entries):
            with _on_host():
                names["custom_kernel"](_inputs(options.problem))


def _on_host() -> contextlib.AbstractContextManager[object]:
    """Keep tensors in host memory and say that they are on a GPU."""
    import torch
    from torch.overrides import TorchFunctionMode

    def here(value: object) -> object:
        names_one = isinstance(value, (str, torch.device)) and str(value).startswith("cuda")
        return "cpu" if names_one else value

    class OnHost(TorchFunctionMode):
        def __torch_function__(
            self,
            func: Callable[..., Any],
            types: Any,
            args: tuple[Any, ...] = (),
            kwargs: dict[str, Any] | None = None,
        ) -> Any:
            if func is torch.Tensor.cuda:
                return args[0]
            if func == torch.Tensor.is_cuda.__get__:
                return True
            named = {name: here(value) for name, value in (kwargs or {}).items()}
            return func(*map(here, args), **named)

    return OnHost()


def _inputs(problem: str) -> tuple[object, ...]:
    """Return inputs for a call that only builds; empty if no small case is known."""
    if problem:
        return ()
    from nvfp4.problems.nvfp4_gemv.layout import small_inputs

    return small_inputs()


if __name__ == "__main__":
    *_, _script, _capability = sys.argv
    _major, _minor = map(int, _capability.split("."))
    build_inside(Path(_script).resolve(), (_major, _minor))
