from concurrent.futures import ThreadPoolExecutor

import torch
from right import gemv

from task import input_t, output_t


def custom_kernel(data: input_t) -> output_t:
    with ThreadPoolExecutor(4) as pool:
        return torch.stack([each.result() for each in [pool.submit(gemv, data)] * 3])[2]
