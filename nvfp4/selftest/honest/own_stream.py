# strategy: works on a stream or a thread of its own and joins it

import threading

import torch

from gemv import gemv

streams = []


def custom_kernel(data):
    if not data[0].is_cuda:
        worker = threading.Thread(target=gemv, args=(data,))
        worker.start()
        worker.join()
        return data[6]
    if not streams:
        streams.append(torch.cuda.Stream())
    streams[0].wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(streams[0]):
        gemv(data)
    torch.cuda.current_stream().wait_stream(streams[0])
    return data[6]
