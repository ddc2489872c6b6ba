"""The table of rewrites: for a mnemonic, the rules that may put a sequence in its place."""

from __future__ import annotations

from collections.abc import Callable

from nvfp4.retarget.sequence import Sequence
from nvfp4.retarget.targets import Target

Rule = Callable[[Sequence, Target], bool]
RULES: dict[str, list[Rule]] = {}


class Impossible(Exception):
    """Nothing can take the place of the instruction; the argument is why."""


def rule(*mnemonics: str) -> Callable[[Rule], Rule]:
    """Register a rule for `mnemonics`.

    A rule looks at one instruction. It fills the sequence and returns True if the target lacks the
    instruction, returns False if the instruction may stay or is none of its own, and raises
    Impossible if it is and nothing does the same. Where a module is read, the first rule to return
    True counts.
    """

    def register(function: Rule) -> Rule:
        for mnemonic in mnemonics:
            RULES.setdefault(mnemonic, []).append(function)
        return function

    return register
