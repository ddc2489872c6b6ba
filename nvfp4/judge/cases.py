"""Case files, and seeds combined with a secret one."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from nvfp4.judge.protocol import Exit, SetupError
from nvfp4.records.cases import Case, CaseError, parse_case
from nvfp4.records.files import read_whole

_most_bytes = 4 << 20


class CaseFileError(SetupError):
    """A case file breaks the format or has no case."""

    def __init__(self, message: str) -> None:
        super().__init__(message, Exit.BAD_CASE_FILE)


def combine_seed(case_seed: int, secret_seed: int) -> int:
    """Return the bot's pairing of a public and a secret seed, in 63 bits."""
    total = case_seed + secret_seed
    return (case_seed + total * (total + 1) // 2) % 2**63


def read_cases(
    path: Path, secret_seed: int | None = None, refuse: Callable[[Case], None] = lambda case: None
) -> list[Case]:
    """Read a case file. refuse: raises CaseError for a case outside the problem.

    Raises CaseFileError, also for a file without cases, as passing no test proves nothing.
    """
    try:
        lines = read_whole(path, _most_bytes).decode("utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise CaseFileError(f"cannot read the case file {path}: {error}") from error
    if not lines:
        raise CaseFileError(f"the case file {path} holds no case")
    cases = []
    for number, line in enumerate(lines, 1):
        try:
            case = parse_case(line)
            refuse(case)
        except CaseError as error:
            raise CaseFileError(f"line {number} of {path}: {error}") from None
        if secret_seed is not None and "seed" in case.arguments:
            seed = combine_seed(case.seed, secret_seed)
            case = replace(case, arguments={**case.arguments, "seed": seed})
        cases.append(case)
    return cases
