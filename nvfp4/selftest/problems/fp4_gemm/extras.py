names = ("a", "b", "sfa", "sfb", "c")


def least_bytes(m, n, k, l, **_):
    return l * ((m + n) * (k // 2 + k // 16) + 2 * m * n)
