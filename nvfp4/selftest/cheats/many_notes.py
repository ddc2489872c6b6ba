# family: 36
# caught: output.mismatch: .*elements are wrong
# needs: cpu
# strategy: add so many findings to a launch that the emulated GPU's account of it is lost

import gc

from ptx import round_off

from gemv import gemv


def custom_kernel(data):
    from nvfp4.capture.emulated_gpu import EmulatedGpu
    from nvfp4.records.launch import Note

    gpu = next(each for each in gc.get_objects() if type(each) is EmulatedGpu)
    round_off(gemv(data).clone() * 0, data)
    for number in range(6000):
        gpu.add_note("round", Note("own_stream", f"{number} " + "x" * 1000))
    return data[6]
