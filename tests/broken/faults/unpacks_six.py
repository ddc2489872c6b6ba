def custom_kernel(data):
    a, b, sfa, sfb, sfa_permuted, c = data
    return c
