# family: 7
# caught: timing.clocks_disagree
# needs: cpu
# only: benchmarks
# strategy: slow down the clock that times a call of a tenth of a second

import gc
import time

from right import right


def custom_kernel(data):
    from nvfp4.gpu import timing

    for timer in gc.get_objects():
        if type(timer) is timing.CpuTimer and not hasattr(timer, "honest"):
            timer.honest = timer._clock_ns
            timer._clock_ns = lambda timer=timer: timer.honest() // 30
    time.sleep(0.1)
    return right(data)
