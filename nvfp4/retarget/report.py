"""What was rewritten."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from nvfp4.emulator.names import short_name


@dataclass
class KernelRewrite:
    """One kernel or device function. rewritten: opcode to how often, counted in the text.

    added: how many instructions more it has than before; fewer count as negative.
    """

    kernel: str
    instructions: int = 0
    rewritten: Counter[str] = field(default_factory=Counter)
    added: int = 0


@dataclass
class RewriteReport:
    """source, target: architectures. kernels: those of the module, in order."""

    source: str
    target: str
    kernels: list[KernelRewrite] = field(default_factory=list)

    @property
    def changed(self) -> list[KernelRewrite]:
        """The kernels in which something was rewritten."""
        return [kernel for kernel in self.kernels if kernel.rewritten]

    def entries(self) -> list[dict[str, Any]]:
        """Plain values of each kernel: `kernel` (its short name), `source`, `target`,
        `instructions`, `rewritten` (opcode to how often), `added` (instructions).
        """
        return [
            {
                "kernel": short_name(kernel.kernel),
                "source": self.source,
                "target": self.target,
                "instructions": kernel.instructions,
                "rewritten": dict(kernel.rewritten.most_common()),
                "added": kernel.added,
            }
            for kernel in self.kernels
        ]
