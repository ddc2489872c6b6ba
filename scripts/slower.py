"""A copy of submission.py that is slower on any GPU: it multiplies some of its rows twice."""

_changes = (
    (
        "grid=(tiles_m, height, depth)",
        "grid=(tiles_m + tiles_m * {permille} // 1000, height, depth)",
    ),
    (
        "        _, height, _ = cute.arch.grid_dim()\n",
        "        _, height, _ = cute.arch.grid_dim()\n"
        "        tiles = (m + self.rows_cta - 1) // self.rows_cta\n"
        "        if tile >= tiles:\n"
        "            tile -= tiles\n",
    ),
)


def slower(source: str, permille: int) -> str:
    """The submission's source with so many CTAs in a thousand more, which repeat the first ones.

    Raises ValueError where the kernel is not written as expected.
    """
    for old, new in _changes:
        if source.count(old) != 1:
            raise ValueError(
                f"the submission has {source.count(old)} lines as {old.strip()!r}, not 1"
            )
        source = source.replace(old, new.format(permille=permille))
    return source
