def custom_kernel(data):
    print(“hello”)
    return data[6]
