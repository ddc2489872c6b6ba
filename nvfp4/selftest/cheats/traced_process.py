# family: 34
# caught: call.exception: [\s\S]*Operation not permitted: 'ptrace'
# strategy: trace a process of this one's, the first step to be another's debugger

import ctypes
import os
import signal

from gemv import gemv

attach = 16


def custom_kernel(data):
    child = os.fork()
    if child == 0:
        signal.pause()
    libc = ctypes.CDLL(None, use_errno=True)
    try:
        if libc.ptrace(attach, child, None, None) < 0:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), "ptrace")
    finally:
        os.kill(child, signal.SIGKILL)
    return gemv(data)
