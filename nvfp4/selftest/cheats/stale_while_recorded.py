# family: 37
# caught: unverified: .*in a later call
# needs: cpu
# strategy: be stale while calls are recorded, and right where they are not

import gc

from gemv import gemv
from kernels import launched_gemv

calls = []


def is_recorded():
    from nvfp4.emulation import StandInEmulation

    return any(type(each) is StandInEmulation and each._recorder for each in gc.get_objects())


def custom_kernel(data):
    if len(data[6]) < 4096:
        return launched_gemv(data)
    calls.append(is_recorded())
    if not calls[-1]:
        return gemv(data)
    return launched_gemv(data) if len(calls) == 1 else data[6]
