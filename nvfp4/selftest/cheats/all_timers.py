# family: 35
# caught: call.exception: [\s\S]*Resource temporarily unavailable: 'timer_create'
# strategy: make timers until the user can have no more signals on their way

import ctypes
import os
import platform

from gemv import gemv

timer_create = 107 if platform.machine() == "aarch64" else 222
left_to_others = 8192


def custom_kernel(data):
    libc, timer = ctypes.CDLL(None, use_errno=True), ctypes.c_int()
    for _ in range(left_to_others):
        if libc.syscall(timer_create, ctypes.c_long(1), None, ctypes.byref(timer)) < 0:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), "timer_create")
    return gemv(data)
