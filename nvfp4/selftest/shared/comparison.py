import torch


def compared(output, expected):
    """Whether an output is right, and in words how many elements are not."""
    if output.shape != expected.shape or output.dtype != expected.dtype:
        return False, f"the output is {output.dtype} {[*output.shape]}"
    wrong = int((~torch.isclose(output, expected, rtol=1e-3, atol=1e-3)).sum())
    return wrong == 0, f"{wrong} of {expected.numel()} elements are wrong"
