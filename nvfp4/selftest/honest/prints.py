# strategy: prints megabytes on import, and while it works

import os
import sys

from gemv import gemv

os.write(1, b"imported " * (1 << 18))


def custom_kernel(data):
    print("check: fail\n" * 1000)
    os.write(2, b"\x1b[2J" * (1 << 18))
    print("working", file=sys.stderr)
    return gemv(data)
