"""The user's options for a judgement, in one record that every process gets as JSON text.

Each option is declared twice with the same name: in ``cli/parameters.py`` for click, and here.
"""

import json
import math
import os
import re
from dataclasses import asdict, dataclass, fields

from nvfp4.records.channel import record
from nvfp4.records.prediction import GPUS

VARIABLE = "NVFP4_OPTIONS"
"""Environment variable with the options as JSON text."""

_DEVICE = re.compile(r"auto|cpu|emulate|cuda(:\d+)?")

_CHOICES = {
    "flush": ("contest", "clean", "fill", "none"),
    "retarget": ("auto", "never"),
    "model": GPUS,
    "calls": ("each", "shared", "together", "graph"),
}


@dataclass(frozen=True)
class Options:
    """The options of a judgement."""

    device: str = "auto"
    """auto, cpu, emulate, cuda or cuda:N."""
    timeout_s: float = 170.0
    """Limit of the tests and of the benchmarks, each; the contest's bot allows 180 s."""
    arch: str = "sm_100a"
    """The architecture that kernels are emulated for without a GPU, and compiled for before they
    are rewritten."""
    retarget: str = "auto"
    """auto, or never: then kernels run on this machine's GPU as they are, or not at all."""
    flush: str = "contest"
    """How the L2 is emptied before a timed call: contest, clean, or fill, which most problems
    have."""
    check: bool = True
    """Whether the emulator looks for findings."""
    strict: bool = False
    """Whether findings fail a case."""
    model: str = "B200"
    """The GPU that times are predicted for if there is none."""
    repeat: bool = True
    """Whether some tests run again in a fresh process."""
    name: str = ""
    """The name of the submission's file in messages, "" for its own name."""
    problem: str = ""
    """The leaderboard whose files lie in the judge's folder, "" for NVFP4 GEMV."""
    calls: str = "each"
    """How the problem's eval.py makes its calls: checks the output of each before the next one,
    against inputs of its own or against those that the call has had (``shared``); keeps the inputs
    and the outputs of several ``together`` in a benchmark; or captures them in a CUDA ``graph``."""
    limit_gib: int = 0
    """Limit in GiB on memory, and on disk, of all processes of the submission; 0 for as much as the
    machine can spare."""

    def __post_init__(self) -> None:
        for name, known in _CHOICES.items():
            if (value := getattr(self, name)) not in known:
                raise ValueError(f"the option {name} is {' or '.join(known)}, not {value!r:.60}")
        if not _DEVICE.fullmatch(self.device):
            raise ValueError(f"the option device cannot be {self.device!r:.60}")
        if not 0 < self.timeout_s < math.inf:
            raise ValueError("the option timeout_s must be a positive number")
        if self.limit_gib < 0:
            raise ValueError("the option limit_gib cannot be negative")

    @property
    def without_gpu(self) -> bool:
        """Whether the user wants to run without a GPU."""
        return self.device in ("cpu", "emulate")

    def as_variable(self) -> dict[str, str]:
        """Return the variable for a process's environment."""
        return {VARIABLE: json.dumps(asdict(self))}


def options_of_environment() -> Options:
    """Return the options in the environment, or the defaults. Raises ValueError."""
    found = json.loads(os.environ.get(VARIABLE) or "{}")
    known = {each.name for each in fields(Options)}
    if not isinstance(found, dict) or not found.keys() <= known:
        raise ValueError(f"{VARIABLE} is not a JSON object of {', '.join(sorted(known))}")
    return record(Options, {**asdict(Options()), **found})


def called_by_the_command() -> bool:
    """Return whether the `nvfp4` command reads the results; the contest's bot reads times alone."""
    return VARIABLE in os.environ
