# strategy: launch a kernel that is right

from right import launched


def custom_kernel(data):
    return launched(data)
