"""What the indices of each of a case's tensors count, and how the contest calls its extents."""

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
