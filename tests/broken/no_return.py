def custom_kernel(data):
    a, b, sfa, sfb, _, _, c = data
    c.zero_()
