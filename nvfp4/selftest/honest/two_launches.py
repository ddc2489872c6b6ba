# strategy: keep sums in a scratch tensor between two kernels

from kernels import launched_gemv


def custom_kernel(data):
    return launched_gemv(data)
