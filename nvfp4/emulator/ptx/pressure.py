"""How many registers are live at each instruction."""

from __future__ import annotations

from collections.abc import Sequence

from nvfp4.emulator.ptx.flow import Block, Effects

_WIDTH = {"pred": 0, "b8": 1, "b16": 1, "b32": 1, "b64": 2}


def live_registers(blocks: Sequence[Block], classes: Sequence[str], effects: Effects) -> list[int]:
    """32-bit registers whose values are needed behind each instruction, or that it sets.

    blocks: with liveness, as `flow.analyse` leaves them. classes: of the registers by index.
    Predicates have registers of their own and do not count. The machine's compiler orders
    instructions anew: this is what the PTX as it stands needs.
    """
    count = sum(len(block.code) for block in blocks)
    found = [0] * count
    for block in blocks:
        live = {register for register in range(len(classes)) if block.live_out >> register & 1}
        total = sum(_WIDTH[classes[register]] for register in live)
        for index in range(block.start + len(block.code) - 1, block.start - 1, -1):
            reads, writes = effects(index)
            dead = {register for register in writes if register not in live}
            found[index] = total + sum(_WIDTH[classes[register]] for register in dead)
            if block.code[index - block.start].guard is None:
                for register in set(writes) & live:
                    live.discard(register)
                    total -= _WIDTH[classes[register]]
            for register in set(reads) - live:
                live.add(register)
                total += _WIDTH[classes[register]]
    return found
