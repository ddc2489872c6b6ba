"""cutlass.testing where nothing can be timed: what is to be measured runs once, and the first wins.

No number stands for a time that nobody has measured.

What `tune`, `autotune_jit` and `benchmark` try is launched as a trial. The next launch that is none
carries a note that says so.
"""

import itertools
import math
from collections.abc import Callable
from typing import Any

from nvfp4.capture.cutedsl.host import HostRuntime
from nvfp4.capture.frames import users_line
from nvfp4.capture.untimed import Untimed
from nvfp4.records.launch import Note

# What another configuration may well do; any other fault leaves a GPU unusable.
_SKIPPED = ("launch_refused", "unsupported_instruction")


def replacements(runtime: HostRuntime) -> dict[str, Callable[..., Any]]:
    """The functions of cutlass.testing that time something, by name, as they are without a GPU."""

    def benchmark(
        callable: Callable[..., Any],
        *,
        kernel_arguments: Any = None,
        workspace_generator: Callable[[], Any] | None = None,
        **_: Any,
    ) -> Untimed:
        arguments = kernel_arguments if workspace_generator is None else workspace_generator()
        if arguments is None:
            raise ValueError("Please pass a kernel argument if not providing a generator")
        with runtime.trying():
            callable(*arguments.args, **arguments.kwargs)
        runtime.note(_note("benchmark", "has run the function once"))
        return Untimed()

    def benchmark_for_autotune(
        callable: Callable[..., Any],
        *args: Any,
        warmup_iterations: int = 0,
        iterations: int = 0,
        use_cold_l2: bool = False,
        print_verbose: bool = False,
        current_stream: Any = None,
        **kwargs: Any,
    ) -> Untimed | float:
        try:
            with runtime.trying():
                callable(*args, **kwargs)
        except Exception as error:
            _raise_unless_skipped(error)
            return math.inf
        runtime.note(_note("autotune_jit", "used the first configuration that works"))
        return Untimed()

    def tune(
        func: Callable[..., Callable[[], Any]],
        params_dict: dict[str, list[Any]] | None = None,
        kernel_arguments: Any = None,
        *_: Any,
        **__: Any,
    ) -> dict[str, Any]:
        if params_dict is None:
            raise ValueError("params_dict must be provided")
        args = kernel_arguments.args if kernel_arguments is not None else ()
        kwargs = kernel_arguments.kwargs if kernel_arguments is not None else {}
        last: Exception | None = None
        for values in itertools.product(*params_dict.values()):
            config = dict(zip(params_dict, values, strict=True))
            try:
                with runtime.trying():
                    func(*args, **{**kwargs, **config})()
            except Exception as error:
                _raise_unless_skipped(error)
                last = error
                continue
            written = ", ".join(f"{name}={value}" for name, value in config.items())
            what = f"used the first configuration that works ({written})"
            runtime.note(_note("tune", what))
            return config
        raise ValueError(f"No best kernel found: {last}") from last

    return {
        "benchmark": benchmark,
        "_benchmark_for_autotune": benchmark_for_autotune,
        "tune": tune,
    }


def _raise_unless_skipped(error: Exception) -> None:
    if (
        isinstance(error, NotImplementedError)
        or getattr(error, "code", _SKIPPED[0]) not in _SKIPPED
    ):
        raise error


def _note(function: str, what: str) -> Note:
    file, line = users_line()
    return Note(
        "autotune",
        f"cutlass.testing.{function} {what}: nothing can be timed without a GPU",
        hint="on a GPU another one may run: try each of them",
        file=file,
        line=line,
    )
