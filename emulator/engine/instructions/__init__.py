"""Every instruction that is not arithmetic; importing this package fills the table."""

from emulator.engine.instructions import access, moves, warp

__all__ = ["access", "moves", "warp"]
