# strategy: compiles for 3 seconds at its first call

import time

from gemv import gemv

compiled = []


def custom_kernel(data):
    if not compiled:
        time.sleep(3)
        compiled.append(gemv)
    return compiled[0](data)
