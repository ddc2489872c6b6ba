# family: 36
# caught: output.mismatch: .*elements are wrong
# needs: cpu
# strategy: write to a variable whose module the emulated GPU has dropped, into what is there now

import gc

from ptx import HEADER

TEXT = """
.global .align 8 .b8 kept[{0}];
.visible .entry of_{1}() {{ .reg .b64 %d1; mov.u64 %d1, kept; ret; }}
"""


def custom_kernel(data):
    from nvfp4.capture.emulated_gpu import EmulatedGpu

    gpu = next(each for each in gc.get_objects() if type(each) is EmulatedGpu)
    kept = gpu.variable(HEADER + TEXT.format(8 << 20, 0), "kept")
    for number in range(1, 80):
        gpu.variable(HEADER + TEXT.format(8, number), "kept")
    gpu.put(kept.address, bytes(kept.nbytes))
    assert gpu.get(kept.address, kept.nbytes) == bytes(kept.nbytes)
    return data[6]
