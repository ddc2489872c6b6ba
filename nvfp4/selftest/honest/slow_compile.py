# strategy: compiles for 6 seconds at its first call

import time

from gemv import gemv

compiled = []


def custom_kernel(data):
    if not compiled:
        time.sleep(6)
        compiled.append(gemv)
    return compiled[0](data)
