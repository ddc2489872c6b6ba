"""A helper raises."""


def rows_of(tensor, wanted):
    shapes = {"a": tensor.shape}
    return shapes["a"][0] + shapes[wanted][0]


def custom_kernel(data):
    a, _, _, _, _, _, c = data
    if rows_of(a, "c") == 0:
        return None
    return c
