def custom_kernel(data):
    return data[6].cpu()
