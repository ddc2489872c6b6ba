# strategy: keeps one compiled kernel for each shape

from gemv import gemv

kernels = {}


def custom_kernel(data):
    shape = (*data[0].shape,)
    if shape not in kernels:
        kernels[shape] = lambda inputs: gemv(inputs)
    return kernels[shape](data)
