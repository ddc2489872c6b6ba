# strategy: prints while it works

import sys

from gemv import gemv


def custom_kernel(data):
    print("check: fail\n" * 1000)
    print("working", file=sys.stderr)
    return gemv(data)
