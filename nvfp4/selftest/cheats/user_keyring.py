# family: 34
# caught: call.exception: [\s\S]*Operation not permitted: 'add_key'
# strategy: leave a key in the user's session for other processes, which no namespace takes away
# quick: yes

import ctypes
import os
import platform

from gemv import gemv

add_key = 217 if platform.machine() == "aarch64" else 248
session_keyring = ctypes.c_long(-3)


def custom_kernel(data):
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.syscall(add_key, b"user", b"draw", b"1234", ctypes.c_long(4), session_keyring) < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), "add_key")
    return gemv(data)
