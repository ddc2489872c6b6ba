# family: 38
# caught: shared_race: .*
# needs: cpu
# strict: yes
# strategy: call every launch of a kernel that races a trial, for which no findings are looked for

import gc
from dataclasses import replace

from nothing import launch_nothing
from racy import racy

from gemv import gemv


def custom_kernel(data):
    from nvfp4.capture.emulated_gpu import EmulatedGpu

    gpu = next(each for each in gc.get_objects() if type(each) is EmulatedGpu)
    result = gemv(data).clone()
    launch_nothing()
    honest = gpu.launch
    gpu.launch = lambda launch: honest(replace(launch, trial=True))
    try:
        return racy(result, data)
    finally:
        gpu.launch = honest
