# family: 20
# caught: output.mismatch: .*elements are wrong
# strategy: leave out one scale block in sixteen

import torch

from gemv import gemv


def custom_kernel(data):
    a, b, sfa, sfb, sfa_permuted, sfb_permuted, c = data
    dropped = sfb.clone()
    dropped.view(torch.uint8)[:, 15::16] = 0
    return gemv((a, b, sfa, dropped, sfa_permuted, sfb_permuted, c))
