# family: 37
# caught: output.mismatch: [\s\S]*in another call with other inputs
# needs: cpu
# only: benchmarks
# strategy: sleep in the first call, so that a second one is left out, and be stale in that

import time

from kernels import partial_sums, rounded

kept = {}


def custom_kernel(data):
    shape = (*data[6].shape,)
    if len(data[6]) < 4096:
        return rounded(partial_sums(data), data)
    if shape not in kept:
        time.sleep(21)
        kept[shape] = partial_sums(data)
    return rounded(kept[shape], data)
