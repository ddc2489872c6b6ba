# family: 24
# caught: contract.l2_set_aside: .*set aside
# needs: cuda
# strategy: set part of the L2 cache aside so that inputs survive the flush

import ctypes

from gemv import gemv

persisting_l2_cache_size = 6


def custom_kernel(data):
    driver = ctypes.CDLL("libcuda.so.1")
    driver.cuCtxSetLimit(persisting_l2_cache_size, ctypes.c_size_t(16 << 20))
    return gemv(data)
