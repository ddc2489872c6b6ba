"""Properties and attributes of the emulated device, as host code queries them."""

import re
from dataclasses import dataclass, replace
from functools import cached_property

from nvfp4.records.launch_errors import UnsupportedCall


@dataclass(frozen=True)
class Device:
    """Properties of one GPU that host code may query. Sizes are in bytes."""

    arch: str
    name: str
    capability: tuple[int, int]
    multiprocessors: int
    shared_bytes_per_block: int
    shared_bytes_per_multiprocessor: int
    threads_per_multiprocessor: int
    l2_bytes: int
    memory_bytes: int
    clock_khz: int
    memory_clock_khz: int
    memory_bus_bits: int

    @cached_property
    def attributes(self) -> dict[int, int]:
        """Values by cudaDevAttr (driver_types.h)."""
        return {
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
            13: self.clock_khz,
            16: self.multiprocessors,
            19: 1,  # CanMapHostMemory
            31: 1,  # ConcurrentKernels
            36: self.memory_clock_khz,
            37: self.memory_bus_bits,
            38: self.l2_bytes,
            39: self.threads_per_multiprocessor,
            40: 3,  # AsyncEngineCount
            41: 1,  # UnifiedAddressing
            75: self.capability[0],
            76: self.capability[1],
            78: 1,  # StreamPrioritiesSupported
            81: self.shared_bytes_per_multiprocessor,
            82: 65536,  # MaxRegistersPerMultiprocessor
            83: 1,  # ManagedMemory
            89: 1,  # ConcurrentManagedAccess
            95: 1,  # CooperativeLaunch
            97: self.shared_bytes_per_block,  # MaxSharedMemoryPerBlockOptin
            106: 32,  # MaxBlocksPerMultiprocessor
            108: self.l2_bytes * 5 // 8,  # MaxPersistingL2CacheSize
            109: 128 << 20,  # MaxAccessPolicyWindowSize
            111: 1024,  # ReservedSharedMemoryPerBlock
            115: 1,  # MemoryPoolsSupported
            120: 1,  # ClusterLaunch
        }

    def attribute(self, which: int) -> int:
        """Return a cudaDeviceAttr. Raises UnsupportedCall for one that is not known."""
        if which not in self.attributes:
            message = f"host code asks for device attribute {which}, which is not known"
            raise UnsupportedCall(message)
        return self.attributes[which]


_B200 = Device(
    arch="sm_100a", name="NVIDIA B200", capability=(10, 0), multiprocessors=148,
    shared_bytes_per_block=232448, shared_bytes_per_multiprocessor=233472,
    threads_per_multiprocessor=2048, l2_bytes=126 * 2**20, memory_bytes=178 * 2**30,
    clock_khz=1_965_000, memory_clock_khz=3_996_000, memory_bus_bits=8192,
)  # fmt: skip
_H100 = replace(
    _B200, arch="sm_90a", name="NVIDIA H100 80GB HBM3", capability=(9, 0), multiprocessors=132,
    l2_bytes=50 * 2**20, memory_bytes=79 * 2**30, clock_khz=1_980_000,
    memory_clock_khz=2_619_000, memory_bus_bits=5120,
)  # fmt: skip


def device_for(arch: str) -> Device:
    """Return the device an architecture stands for: B200 for sm_100*, H100 for sm_90*.

    Raises ValueError for others.
    """
    for device in (_B200, _H100):
        if arch.rstrip("af") == device.arch.rstrip("a"):
            return replace(device, arch=arch)
    raise ValueError(f"cannot emulate {arch}: sm_100a and sm_90a are known")


CODE = re.compile(r"(sm|compute)_(\d+)([af]?)")
"""Name of the target of machine code or PTX: kind, number and suffix."""


def runs_on(code: str, capability: tuple[int, int]) -> bool:
    """Whether a device runs code such as compute_80. Machine code runs on its family, PTX on all
    later devices, and code with a suffix only on its own architecture (a) or family (f).
    """
    made = CODE.fullmatch(code)
    if made is None:  # native, all
        return True
    kind, number, suffix = made.groups()
    least = divmod(int(number), 10)
    if suffix == "a":
        return capability == least
    of_family = kind == "sm" or suffix == "f"
    return least <= capability and (not of_family or least[0] == capability[0])
