# family: 35
# caught: not_judged.machine_limit: [\s\S]*it was stopped: its processes took
# strategy: fill anonymous files that nobody maps, whose memory counts for no process
# limit_gib: 3

import os
import time

from gemv import gemv

kept = []
piece = bytes(64 << 20)


def custom_kernel(data):
    for _ in range(5):
        kept.append(os.memfd_create("kept"))
        for _ in range(16):
            os.write(kept[-1], piece)
    time.sleep(2)
    return gemv(data)
