"""Every instruction that is not arithmetic; importing this package fills the table."""

from nvfp4.emulator.instructions import (  # noqa: F401
    async_copies,
    async_stores,
    atomics,
    bulk_copies,
    calls,
    cluster_barriers,
    cta_barriers,
    dependent_launch,
    hints,
    launch_control,
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
