"""The right answer in plain torch, which selftest puts in front of every file of the corpus."""

import torch


def gemv(data):
    """c[i, 0, l] = sum over k of a * sfa * b * sfb, exact; writes c and returns it."""
    a, b, sfa, sfb, _, _, c = data

    def decode(packed):  # uint8 [...] -> even and odd elements, float32, times 2**-14
        codes = packed.to(torch.int16)
        halves = [((x & 8) << 12 | (x & 7) << 9).view(torch.float16) for x in (codes, codes >> 4)]
        return [half.float() for half in halves]

    b_even, b_odd = decode(b.view(torch.uint8)[:1].permute(2, 0, 1))
    a_even, a_odd = decode(a.view(torch.uint8).permute(2, 0, 1))
    products = (a_even * b_even + a_odd * b_odd) * 2.0**28
    sums = products.view(c.shape[2], c.shape[0], -1, 8).sum(dim=3).double()
    scaled = sums * sfa.permute(2, 0, 1).float() * sfb[:1].permute(2, 0, 1).float()
    c.copy_(scaled.sum(dim=2, keepdim=True).permute(1, 2, 0).half())
    return c
