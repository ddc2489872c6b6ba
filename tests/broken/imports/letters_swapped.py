def decode(packed):
    return packed


def custom_kernal(data):
    return data[6]
