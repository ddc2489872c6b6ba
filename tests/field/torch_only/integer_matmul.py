#!POPCORN leaderboard nvfp4_gemv
#!POPCORN gpu NVIDIA
# expect: fail cause=exception
"""An integer matrix product on the device: not implemented for CUDA"""

import torch

FP4 = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6])


def dec(x, dt=torch.float32):
    u = x.view(torch.uint8)
    f = FP4.to(u.device, dt)
    return torch.stack([f[(u & 15).int()], f[(u >> 4).int()]], -1).flatten(-2)


def custom_kernel(data):
    a, b, sfa, sfb, pa, pb, c = data
    for i in range(c.shape[2]):
        x = (dec(a[:, :, i]) * 2).to(torch.int32)
        y = (dec(b[:1, :, i]) * 2).to(torch.int32)
        m, k = x.shape
        d = (
            torch.bmm(x.view(m, k // 16, 16).transpose(0, 1), y.view(k // 16, 16, 1))
            .squeeze(2)
            .t()
            .double()
            / 4
        )
        c[:, 0, i] = (d * sfa[:, :, i].double() * sfb[0, :, i].double()).sum(1).half()
    return c
