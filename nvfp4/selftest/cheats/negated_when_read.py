# family: 17
# caught: contract.returned: .*a view that is negated or conjugated when it is read
# strategy: return the right bytes as a view whose elements are their negatives

from gemv import gemv


def custom_kernel(data):
    return gemv(data)._neg_view()
