"""Inputs of the right shapes and other contents, for a submission that is only asked what it
launches.

They are the contest's or full-range ones whatever the case has: a look at them tells nothing of it.
"""

from __future__ import annotations

import secrets
from dataclasses import replace

import torch

from nvfp4.contract.layout import input_names, storages
from nvfp4.judge.cases import Case
from nvfp4.judge.opened_case import generate
from nvfp4.shared_memory.buffers import SharedBuffers

_atom_rows = 128
"""Of the permuted scales: where rows repeat with this period, so do they."""

_drawn_atoms = 4


class Decoys:
    """A few rows of one batch, drawn at random and repeated: to draw every row takes seconds."""

    def __init__(self, case: Case) -> None:
        sizes = (_drawn_atoms * _atom_rows, _atom_rows)
        rows = next((each for each in sizes if case.m % each == 0), case.m)
        batches = case.l if rows == case.m else 1
        kind = bool(secrets.randbits(1))
        drawn = generate(replace(case, m=rows, l=batches, full_range=kind), secrets.randbits(63))
        blocks = storages(drawn, rows, case.k, batches)
        self._blocks = {name: blocks[name] for name in input_names}

    def fill(self, buffers: SharedBuffers) -> None:
        """Writes all inputs."""
        for name, block in self._blocks.items():
            buffers.tensors[name].view(-1, block.numel()).copy_(block)

    def changed(self, buffers: SharedBuffers) -> str | None:
        """The first input that is not what was written."""
        for name, block in self._blocks.items():
            rows = buffers.tensors[name].view(-1, block.numel())
            if not all(torch.equal(row, block) for row in rows):
                return name
        return None
