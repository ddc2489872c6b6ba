# family: 25
# caught: output.state: .*elements are wrong|output.mismatch: .*elements are wrong
# strategy: go on with copies of the first inputs, as a stale graph does

from gemv import gemv

kept = {}


def custom_kernel(data):
    first = kept.setdefault((*data[0].shape,), tuple(each.clone() for each in data))
    return data[6].copy_(gemv(first))
