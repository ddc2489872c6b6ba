"""Options of `nvfp4 batch`."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Protocol

from nvfp4.cli.batch.eval_process import Candidate
from nvfp4.records.options import Options

Told = Callable[[Candidate, dict[str, Any]], None]
"""A callback that is given each verdict as it comes."""


@dataclass(frozen=True)
class BatchOptions:
    """jsonl: the file of the results; None for the history. stop_early: end a judgement at its
    first failure. limit_s: of each submission. jobs: how many judgements on the CPU at once. ray:
    the address of a cluster. judging: options of `nvfp4 eval` by their names.
    """

    jsonl: Path | None = None
    resume: bool = False
    stop_early: bool = False
    limit_s: float | None = None
    jobs: int | None = None
    ray: str | None = None
    device: str = "auto"
    judging: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, options: Mapping[str, Any]) -> "BatchOptions":
        """Return the options of a batch from those of the command. Options without a field here are
        those of `nvfp4 eval`."""
        own = {each.name for each in fields(cls)} & set(options)
        judging = {name: value for name, value in options.items() if name not in own}
        return cls(**{name: options[name] for name in own}, judging=judging)

    @property
    def arguments(self) -> list[str]:
        """The command line of `nvfp4 eval`, but for its device."""
        found = ["--stop"] if self.stop_early else []
        for name, value in self.judging.items():
            if value is True or value is False:
                found += [f"--{name}"] if value else ["--no-check"] if name == "check" else []
            elif value is not None:
                found += [f"--{name.removesuffix('_s')}", str(value)]
        return found

    @property
    def options(self) -> Options:
        """The options of a judgement."""
        known = {each.name for each in fields(Options)}
        chosen = {name: each for name, each in self.judging.items() if name in known}
        return Options(device=self.device, **chosen)

    def identity(self, kind: str) -> dict[str, Any]:
        """Return the settings that a verdict depends on besides the content. kind: cuda or cpu."""
        own = {"stop_early": self.stop_early, "limit_s": self.limit_s}
        return {"device": kind, **self.judging, **own}


class Judges(Protocol):
    """The places where submissions are judged. kind: cuda or cpu."""

    kind: str

    def judge(self, candidates: Sequence[Candidate], told: Told) -> None:
        """Judge each candidate once and pass every verdict to ``told``. An interrupt ends it; the
        verdicts complete by then are passed on."""
