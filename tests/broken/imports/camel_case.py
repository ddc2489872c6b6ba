def customKernel(data):
    return data[6]
