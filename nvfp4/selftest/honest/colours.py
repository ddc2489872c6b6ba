# strategy: prints colours and a progress bar

import sys

from gemv import gemv


def custom_kernel(data):
    for percent in range(100):
        print(f"\r\x1b[32m{percent} %\x1b[0m", end="", file=sys.stderr)
    return gemv(data)
