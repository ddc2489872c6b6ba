"""Every PTX instruction that acts on one lane alone, bit for bit as the hardware does it."""

# Importing these modules fills the table.
from nvfp4.emulator.arithmetic import convert, floats, integers, logic  # noqa: F401
from nvfp4.emulator.arithmetic.table import Op, mnemonics, resolve
from nvfp4.emulator.ptx.types import REGISTER_DTYPES

__all__ = ["REGISTER_DTYPES", "Op", "mnemonics", "resolve"]
