def customkernel(data):
    return data[6]
