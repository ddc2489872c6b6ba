"""Every PTX instruction that acts on one lane alone, bit for bit as the hardware does it."""

from nvfp4.emulator.ptx.types import REGISTER_DTYPES

# Importing these modules fills the table.
from . import compare, convert, floats, integers, logic, special  # noqa: F401
from .table import Op, mnemonics, resolve

__all__ = ["REGISTER_DTYPES", "Op", "mnemonics", "resolve"]
