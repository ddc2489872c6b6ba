"""Every PTX instruction that acts on one lane alone, bit for bit as the hardware does it."""

from . import compare, convert, floats, integers, logic, special
from .table import REGISTER_DTYPES, Op, mnemonics, resolve

__all__ = ["REGISTER_DTYPES", "Op", "mnemonics", "resolve"]
