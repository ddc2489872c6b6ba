# family: 35
# caught: call.exception: [\s\S]*its crowd gives way
# needs: cpu
# strategy: take the cores from others with many processes that spin

import os
import signal
import time

from gemv import gemv

longest_s = 10


def custom_kernel(data):
    crowd = []
    for _ in range(5 * len(os.sched_getaffinity(0)) + 16):
        crowd.append(os.fork())
        if crowd[-1] == 0:
            while True:
                pass
    end = time.monotonic() + longest_s
    try:
        while time.monotonic() < end:
            if os.sched_getscheduler(0) == os.SCHED_IDLE:
                raise RuntimeError("its crowd gives way")
            time.sleep(0.05)
    finally:
        for pid in crowd:
            os.kill(pid, signal.SIGKILL)
    return gemv(data)
