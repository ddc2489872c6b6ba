"""What the pretended device answers when host code asks about it."""

from __future__ import annotations

from dataclasses import dataclass, field, replace


@dataclass(frozen=True)
class Device:
    """What host code may ask of one GPU. Sizes in bytes.

    attributes: values of cudaDevAttr (driver_types.h) that host code may ask for.
    """

    arch: str
    name: str
    capability: tuple[int, int]
    multiprocessors: int
    shared_bytes_per_block: int
    shared_bytes_per_multiprocessor: int
    threads_per_multiprocessor: int
    l2_bytes: int
    memory_bytes: int
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
            9: 64 * 1024,  # TotalConstantMemory
            10: 32,  # WarpSize
            12: 65536,  # MaxRegistersPerBlock
            16: self.multiprocessors,
            18: 0,  # Integrated
            31: 1,  # ConcurrentKernels
            38: self.l2_bytes,
            39: self.threads_per_multiprocessor,
            41: 1,  # UnifiedAddressing
            75: self.capability[0],
            76: self.capability[1],
            81: self.shared_bytes_per_multiprocessor,
            82: 65536,  # MaxRegistersPerMultiprocessor
            83: 1,  # ManagedMemory
            89: 1,  # ConcurrentManagedAccess
            95: 1,  # CooperativeLaunch
            97: self.shared_bytes_per_block,  # MaxSharedMemoryPerBlockOptin
            102: 0,  # VirtualMemoryManagementSupported
            106: 32,  # MaxBlocksPerMultiprocessor
            111: 1024,  # ReservedSharedMemoryPerBlock
            115: 1,  # MemoryPoolsSupported
            120: 1,  # ClusterLaunch
        }
        object.__setattr__(self, "attributes", attributes)


_B200 = Device(
    arch="sm_100a",
    name="NVIDIA B200",
    capability=(10, 0),
    multiprocessors=148,
    shared_bytes_per_block=232448,
    shared_bytes_per_multiprocessor=233472,
    threads_per_multiprocessor=2048,
    l2_bytes=126 * 2**20,
    memory_bytes=178 * 2**30,
)
_H100 = Device(
    arch="sm_90a",
    name="NVIDIA H100 80GB HBM3",
    capability=(9, 0),
    multiprocessors=132,
    shared_bytes_per_block=232448,
    shared_bytes_per_multiprocessor=233472,
    threads_per_multiprocessor=2048,
    l2_bytes=50 * 2**20,
    memory_bytes=79 * 2**30,
)


def device_for(arch: str) -> Device:
    """The device an architecture stands for: B200 for sm_100*, H100 for sm_90*.

    Raises ValueError for others.
    """
    for device in (_B200, _H100):
        family = device.arch.rstrip("a")
        if arch.rstrip("af") == family:
            return replace(device, arch=arch)
    raise ValueError(f"cannot emulate {arch}: sm_100a and sm_90a are known")
