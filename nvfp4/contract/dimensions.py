"""What the indices of each of a case's tensors count, and how the contest calls its extents."""

from typing import Any

import torch

from nvfp4.contract.layout import layouts

_scale_dimensions = (
    ("row % 32", "32"), ("row // 32 % 4", "4"), ("row // 128", "rest_m"),
    ("k block % 4", "4"), ("k block // 4", "rest_k"), ("batch", "l"),
)  # fmt: skip

dimensions = {
    **dict.fromkeys(("a", "b"), (("row", "m"), ("byte of k", "k/2"), ("batch", "l"))),
    **dict.fromkeys(("sfa", "sfb"), (("row", "m"), ("k block", "k/16"), ("batch", "l"))),
    **dict.fromkeys(("sfa_permuted", "sfb_permuted"), _scale_dimensions),
    "c": (("row", "m"), ("column", "n"), ("batch", "l")),
}
"""By the tensor's name, for messages."""


def described_buffers(shape: tuple[int, int, int], offsets: dict[str, int]) -> list[Any]:
    """The buffers of a case (m, k, l) that launches may touch, as `Execute` has them."""
    described = []
    for name, layout in layouts(*shape).items():
        view = layout.view(torch.empty(layout.nbytes, dtype=torch.uint8, device="meta"))
        strides = [each * view.element_size() for each in view.stride()]
        described.append(
            [
                name,
                offsets[name],
                layout.nbytes,
                name == "c",
                list(view.shape),
                strides,
                [list(pair) for pair in dimensions[name]],
            ]
        )
    return described
