# family: 17
# caught: contract.returned: .*returned a Lazy
# strategy: return a tensor subclass that computes when it is compared

import torch

from gemv import gemv


class Lazy(torch.Tensor):
    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        with torch._C.DisableTorchFunctionSubclass():
            gemv(cls.data)
            return function(*args, **(kwargs or {}))


def custom_kernel(data):
    Lazy.data = data
    return data[6].as_subclass(Lazy)
