"""A right answer by a kernel whose threads race in shared memory, which changes no result."""

from ptx import round_off


def racy(result, data):
    """c from a result [m, 1, l]."""
    return round_off(result, data, trick=".shared .align 4 .b8 racy[4]; st.shared.b32 [racy], %r3;")
