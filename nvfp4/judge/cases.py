"""Case files, and seeds combined with a secret one."""

import re
from dataclasses import dataclass, replace
from pathlib import Path

from nvfp4.contract.task import TestSpec, k_multiple


class CaseFileError(ValueError):
    """A case file is not as it should be."""


@dataclass(frozen=True)
class Case:
    """One line of a case file. spec: as written; the seed may have been combined."""

    spec: str
    m: int
    k: int
    l: int
    seed: int
    full_range: bool = False

    @property
    def bytes(self) -> int:
        """The least a kernel must move: a, row 0 of b, their scales, and c."""
        return self.l * ((self.m + 1) * (self.k // 2 + self.k // 16) + 2 * self.m)


largest = 2**31 - 1
"""Of m, k and l, as CUDA allows; sizes stay in 64 bits."""

_shown = 80

_field = re.compile(r"\s*([a-zA-Z_]+):\s*([a-zA-Z]+|[+-]?[0-9]+)\s*")
_inputs = {"contest": False, "full": True}


def parse_case(line: str) -> Case:
    """``m: 128; k: 256; l: 1; seed: 1111``; ``inputs: full`` may follow. Raises CaseFileError."""
    fields: dict[str, str] = {}
    for part in line.split(";"):
        matched = _field.fullmatch(part)
        if not matched:
            raise CaseFileError(f"{part.strip()[:_shown]!r} is not 'name: value'")
        name, value = matched.groups()
        if name in fields:
            raise CaseFileError(f"{name[:_shown]!r} stands twice")
        fields[name] = value
    inputs = fields.pop("inputs", "contest")
    if inputs not in _inputs:
        raise CaseFileError(f"inputs must be contest or full, not {inputs[:_shown]!r}")
    wanted = set(TestSpec.__annotations__)
    if set(fields) != wanted:
        raise CaseFileError(f"a case must name {', '.join(sorted(wanted))}")
    try:
        numbers = {name: int(value) for name, value in fields.items()}
    except ValueError:
        raise CaseFileError("every value must be a whole number") from None
    m, k, l = numbers["m"], numbers["k"], numbers["l"]
    for holds, rule in (
        (m >= 1 and l >= 1, "m and l must be at least 1"),
        (k >= 1 and k % k_multiple == 0, f"k must be a positive multiple of {k_multiple}"),
        (max(m, k, l) <= largest, f"m, k and l must be at most {largest}"),
        (0 <= numbers["seed"] < 2**63, "seed must lie between 0 and 2**63 - 1"),
    ):
        if not holds:
            raise CaseFileError(rule)
    return Case(line.strip(), m, k, l, numbers["seed"], _inputs[inputs])


def combine_seed(case_seed: int, secret_seed: int) -> int:
    """The bot's pairing of a public and a secret seed, in 63 bits."""
    total = case_seed + secret_seed
    return (case_seed + total * (total + 1) // 2) % 2**63


def read_cases(path: Path, secret_seed: int | None = None) -> list[Case]:
    """Raises CaseFileError, for a file without cases too: nothing proves nothing."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise CaseFileError(f"cannot read the case file {path}: {error}") from error
    if not lines:
        raise CaseFileError(f"the case file {path} holds no case")
    cases = []
    for number, line in enumerate(lines, 1):
        try:
            case = parse_case(line)
        except CaseFileError as error:
            raise CaseFileError(f"line {number} of {path}: {error}") from None
        if secret_seed is not None:
            case = replace(case, seed=combine_seed(case.seed, secret_seed))
        cases.append(case)
    return cases
