"""Architectures that PTX is rewritten for."""

from __future__ import annotations

import re
from dataclasses import dataclass

_NAME = re.compile(r"sm_(\d+)([af]?)")
# Architectures with features of their own, which PTX asks for by the suffix.
_SPECIFIC = (90, 100, 101, 103, 110, 120, 121)


@dataclass(frozen=True)
class Target:
    """An architecture such as sm_90a: number 90, suffix "a".

    ptx: the version that the text is written in, which may be older than what the target has.
    """

    number: int
    suffix: str = ""
    ptx: tuple[int, int] = (99, 0)

    def __str__(self) -> str:
        return f"sm_{self.number}{self.suffix}"

    def has(self, number: int, ptx: tuple[int, int]) -> bool:
        """Whether it has what came with an architecture and a version of PTX."""
        return self.number >= number and self.ptx >= ptx

    @property
    def has_tensor_memory(self) -> bool:
        """Whether it is of the family of sm_100a."""
        return 100 <= self.number < 120 and bool(self.suffix)


def parse_target(name: str) -> Target:
    """The target of a name such as sm_90a. Raises ValueError for one before sm_80."""
    matched = _NAME.fullmatch(name)
    if matched is None or int(matched[1]) < 80:
        raise ValueError(f"{name} is not an architecture from sm_80 on, such as sm_80 or sm_90a")
    return Target(int(matched[1]), matched[2])


def target_of(capability: tuple[int, int]) -> Target:
    """The target of a device's compute capability, with all its features. Raises ValueError for
    one before sm_80.
    """
    number = 10 * capability[0] + capability[1]
    if number < 80:
        raise ValueError(f"sm_{number} is older than sm_80, the first that PTX is rewritten for")
    return Target(number, "a" if number in _SPECIFIC else "")
