"""Every instruction that is not arithmetic; importing this package fills the table."""

from nvfp4.emulator.instructions import (  # noqa: F401
    access,
    async_copies,
    atomics,
    barriers,
    bulk_copies,
    control,
    launch_control,
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
