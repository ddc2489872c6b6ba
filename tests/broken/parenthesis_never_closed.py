def custom_kernel(data):
    a, b, sfa, sfb, _, _, c = data
    c.copy_(a.sum(dim=1, keepdim=True)
    return c
