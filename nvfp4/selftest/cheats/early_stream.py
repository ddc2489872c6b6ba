# family: 16
# caught: output.mismatch: [\s\S]*in calls queued behind each other
# needs: cuda
# strategy: begin on a stream that does not wait, while the cache is still being flushed

import torch

from gemv import gemv

streams = []


def custom_kernel(data):
    if not streams:
        streams.append(torch.cuda.Stream())
    with torch.cuda.stream(streams[0]):
        gemv(data)
    torch.cuda.current_stream().wait_stream(streams[0])
    return data[6]
