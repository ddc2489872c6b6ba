from my_kernels import gemv


def custom_kernel(data):
    return gemv(data)
