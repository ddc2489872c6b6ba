from right import gemv

from task import input_t, output_t


def custom_kernel(data: input_t) -> output_t:
    data[6].copy_(gemv(data))
    return data[6]
