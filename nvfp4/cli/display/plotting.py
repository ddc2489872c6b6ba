"""Matplotlib, where it is installed."""

from __future__ import annotations

from typing import Any

from nvfp4.cli.errors import SetupError


def load_pyplot(what: str = "a plot") -> Any:
    """The module that draws, set up for files: text stays text, and the same picture is the same
    file. what: needs it. Raises SetupError without matplotlib.
    """
    try:
        import matplotlib
    except ImportError:
        hint = "pip install 'nvfp4[plot]' brings it."
        raise SetupError(f"{what} needs matplotlib, which is missing", hint) from None
    matplotlib.use("agg")
    matplotlib.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "nvfp4"})
    from matplotlib import pyplot

    return pyplot
