from right import gemv

from task import input_t


def custom_kernel(data: input_t) -> None:
    data[6].copy_(gemv(data))
