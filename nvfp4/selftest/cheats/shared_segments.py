# family: 35
# caught: call.exception: [\s\S]*Function not implemented: 'shmget'
# strategy: keep memory in segments that belong to no process

import ctypes
import os

from gemv import gemv

private, create, mebibytes_64 = 0, 0o1600, ctypes.c_size_t(64 << 20)


def custom_kernel(data):
    libc = ctypes.CDLL(None, use_errno=True)
    for _ in range(64):
        if libc.shmget(private, mebibytes_64, create) < 0:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), "shmget")
    return gemv(data)
