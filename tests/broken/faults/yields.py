def custom_kernel(data):
    yield data[6]
