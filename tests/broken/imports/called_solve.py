def helper(x):
    return x


def solve(data):
    return data[6]
