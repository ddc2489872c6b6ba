"""Errors of functions that measure time, which is not possible without a GPU."""

from typing import Any

from nvfp4.records.launch_errors import NeedsGpu, UnsupportedCall


def no_time() -> NeedsGpu:
    """Return the error for a function that returns a time: any number from here would be taken for
    one."""
    return NeedsGpu(
        "no time can be measured: this machine has no GPU, kernels run in an emulator",
        hint="choose a configuration by the shape where no time can be measured",
    )


def refuse_timing(name: str) -> Any:
    """Return a function that says why nothing can be timed."""

    def refuse(*_: Any, **__: Any) -> Any:
        message = f"{name} measures time, and without a GPU there is none to measure"
        hint = "choose a configuration by the shape where timing fails"
        raise UnsupportedCall(message, hint=hint)

    return refuse
