# family: 35
# caught: call.exception: [\s\S]*no session of its own
# needs: cpu
# strategy: spin in many sessions, each of which Linux gives as large a share of the cores

import os

from gemv import gemv


def custom_kernel(data):
    before = os.getsid(0)
    told, tell = os.pipe()
    if os.fork() == 0:
        os.setsid()
        os.write(tell, str(os.getsid(0)).encode())
        os._exit(0)
    os.wait()
    if int(os.read(told, 20)) == before:
        raise RuntimeError("no session of its own")
    return gemv(data)
