# family: 35
# caught: not_judged.machine_limit: [\s\S]*it was stopped: its processes took
# strategy: take in many processes together what none may take alone
# limit_gib: 3

import mmap
import os
import time

from gemv import gemv


def custom_kernel(data):
    for _ in range(5):
        if os.fork() == 0:
            memory = mmap.mmap(-1, 1 << 30, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
            for _ in range(16):
                memory.write(bytes(64 << 20))
            time.sleep(3600)
    time.sleep(5)
    return gemv(data)
