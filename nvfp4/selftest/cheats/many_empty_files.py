# family: 35
# caught: not_judged.machine_limit: [\s\S]*it was stopped: its files took more than
# slow: yes
# strategy: fill its folder with more empty files than the judge can clear away in its time
# limit_gib: 1

import os
import time

from gemv import gemv


def custom_kernel(data):
    for folder in range(100):
        os.mkdir(f"many-{folder}")
        for number in range(1000):
            os.close(os.open(f"many-{folder}/{number}", os.O_CREAT | os.O_WRONLY))
    time.sleep(2)
    return gemv(data)
