# family: 16
# caught: timing.unjoined_stream|timing.below_floor
# needs: cuda
# strategy: do the work on a stream that nobody waits for

import torch

from gemv import gemv

streams = []


def custom_kernel(data):
    if not streams:
        streams.append(torch.cuda.Stream())
    with torch.cuda.stream(streams[0]):
        return gemv(data)
