"""How many warps an SM of a B200 holds, by the limits of compute capability 10.0."""

from __future__ import annotations

most_warps = 64
_most_ctas = 32
_registers = 64 << 10
_shared_bytes = 228 << 10
_reserved_bytes = 1 << 10
"""Of shared memory, which the system takes from each CTA."""

_warp_registers = 256
"""Registers are given to a warp in multiples of these."""

_quarters = 4
"""An SM's registers are in four parts, and a warp has all its own in one."""

_shared_unit_bytes = 128


def warps_per_sm(threads: int, registers: int, shared_bytes: int) -> int:
    """Warps that an SM holds of CTAs with so many threads and shared bytes; registers: a thread's.

    0 where not even one CTA fits.
    """
    warps = _rounded_up(threads, 32) // 32
    by_registers = _registers // _quarters // _rounded_up(32 * max(registers, 1), _warp_registers)
    shared = _rounded_up(shared_bytes + _reserved_bytes, _shared_unit_bytes)
    ctas = min(
        _most_ctas,
        most_warps // warps,
        _quarters * by_registers // warps,
        _shared_bytes // shared,
    )
    return ctas * warps


def _rounded_up(value: int, unit: int) -> int:
    return -(-value // unit) * unit
