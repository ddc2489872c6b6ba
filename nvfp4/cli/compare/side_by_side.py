"""Has files timed side by side by ``local.comparison``, and reads what it writes."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from nvfp4.cli.errors import SetupError
from nvfp4.cli.judging.bot import Bot
from nvfp4.cli.text import visible_json
from nvfp4.records.failures import Failure, read_failure

Times = list[list[list[float]]]
"""Of a wave: microseconds [rounds][files][shapes]."""


class FailedThere(Exception):
    """A file was wrong while it was timed. file: its number. case: the number of the benchmark,
    None where it could not be loaded.
    """

    def __init__(self, file: int, case: int | None, message: str, failure: Failure | None) -> None:
        super().__init__(message)
        self.file, self.case, self.failure = file, case, failure


def time_side_by_side(
    bot: Bot,
    contents: list[bytes],
    benchmarks: list[str],
    rounds: int | None,
    seed: int,
    on_wave: Callable[[Times], bool],
) -> None:
    """Until on_wave returns True, or there were so many rounds. Raises FailedThere, and SetupError
    where nothing can be timed.
    """
    told: list[FailedThere] = []
    enough = False

    def on_result(key: str, value: str) -> bool:
        nonlocal enough
        if key.startswith("wave."):
            enough = on_wave(json.loads(value))
        elif key == "failed":
            found: dict[str, Any] = visible_json(value)
            failure = read_failure(found["failure"])
            told.append(FailedThere(found["file"], found["case"], found["message"], failure))
        return enough

    ended = bot.run_comparison(contents, rounds, seed, benchmarks, on_result)
    if told:
        raise told[0]
    if not enough:
        last = ended.stderr.splitlines()[-1:] or [f"it ended with {ended.exit_code}"]
        why = ended.values.get("error", last[0])
        raise SetupError(f"the files could not be timed: {why}", "nvfp4 eval says more of each.")
