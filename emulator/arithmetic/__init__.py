"""Every PTX instruction that acts on one lane alone, bit for bit as the hardware does it."""

# Importing these modules fills the table.
from . import compare, convert, floats, integers, logic, special  # noqa: F401
from .table import REGISTER_DTYPES, Op, mnemonics, resolve

__all__ = ["REGISTER_DTYPES", "Op", "mnemonics", "resolve"]
