"""What the pretended device answers when host code asks about it."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Device:
    """Limits of one GPU. Sizes in bytes.

    attributes: values of cudaDevAttr (driver_types.h) that host code may ask for.
    """

    arch: str
    capability: tuple[int, int]
    multiprocessors: int
    shared_bytes_per_block: int
    shared_bytes_per_multiprocessor: int
    threads_per_multiprocessor: int
    l2_bytes: int
    attributes: dict[int, int] = field(init=False)

    def __post_init__(self) -> None:
        attributes = {
            1: 1024,  # MaxThreadsPerBlock
            2: 1024,  # MaxBlockDimX
            3: 1024,  # MaxBlockDimY
            4: 64,  # MaxBlockDimZ
            5: 2**31 - 1,  # MaxGridDimX
            6: 65535,  # MaxGridDimY
            7: 65535,  # MaxGridDimZ
            8: 48 * 1024,  # MaxSharedMemoryPerBlock
            10: 32,  # WarpSize
            12: 65536,  # MaxRegistersPerBlock
            16: self.multiprocessors,
            38: self.l2_bytes,
            39: self.threads_per_multiprocessor,
            75: self.capability[0],
            76: self.capability[1],
            81: self.shared_bytes_per_multiprocessor,
            82: 65536,  # MaxRegistersPerMultiprocessor
            95: 1,  # CooperativeLaunch
            97: self.shared_bytes_per_block,  # MaxSharedMemoryPerBlockOptin
            106: 32,  # MaxBlocksPerMultiprocessor
            111: 1024,  # ReservedSharedMemoryPerBlock
            120: 1,  # ClusterLaunch
        }
        object.__setattr__(self, "attributes", attributes)


_B200 = Device("sm_100a", (10, 0), 148, 232448, 233472, 2048, 126 * 2**20)
_H100 = Device("sm_90a", (9, 0), 132, 232448, 233472, 2048, 50 * 2**20)


def device_for(arch: str) -> Device:
    """The device an architecture stands for: B200 for sm_100*, H100 for sm_90*.

    Raises ValueError for others.
    """
    for device in (_B200, _H100):
        family = device.arch.rstrip("a")
        if arch.rstrip("af") == family:
            return Device(arch, *[getattr(device, name) for name in _LIMITS])
    raise ValueError(f"cannot emulate {arch}: sm_100a and sm_90a are known")


_LIMITS = (
    "capability",
    "multiprocessors",
    "shared_bytes_per_block",
    "shared_bytes_per_multiprocessor",
    "threads_per_multiprocessor",
    "l2_bytes",
)
