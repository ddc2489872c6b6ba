"""Every instruction that is not arithmetic; importing this package fills the table."""

from nvfp4.emulator.instructions import (  # noqa: F401
    async_copies,
    atomics,
    bulk_copies,
    calls,
    cta_barriers,
    hints,
    loads_and_stores,
    matrix_moves,
    matrix_products,
    mbarrier,
    moves,
    tiles,
    warp,
    wmma,
)
from nvfp4.emulator.instructions.tensor import (  # noqa: F401
    allocation,
    completion,
    copies,
    loads,
    multiply,
)
