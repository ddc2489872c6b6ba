# family: 35
# caught: kernel.emulator_error: .*the size of a shared file is not sealed
# needs: cpu
# strategy: share a file that can still grow with the emulated GPU, so that nothing counts it

import gc
import mmap
import os

from gemv import gemv


def custom_kernel(data):
    from nvfp4.capture.emulated_gpu import EmulatedGpu
    from nvfp4.records.gpu_messages import Share

    gpu = next(each for each in gc.get_objects() if type(each) is EmulatedGpu)
    file = os.memfd_create("grows", os.MFD_ALLOW_SEALING)
    os.ftruncate(file, mmap.PAGESIZE)
    gpu._ask(Share(1 << 45, mmap.PAGESIZE), file)
    os.ftruncate(file, 1 << 30)
    return gemv(data)
