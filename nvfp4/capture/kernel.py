"""A kernel that can be launched: the parts of its PTX that a launch needs, and what CUDA
refuses."""

import math
import re
from collections.abc import Iterator
from contextlib import contextmanager

from nvfp4.capture.codes import Code, CudaError
from nvfp4.capture.device import Device, runs_on
from nvfp4.records.base import Record
from nvfp4.records.launch import Dim3, Examine
from nvfp4.records.launch_errors import UnsupportedCall

_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_ENTRY = re.compile(r"\.entry\s+([\w$%]+)\s*(?:\((.*?)\))?", re.DOTALL)
_DIRECTIVES = r"\.entry\s+{}\b\s*(?:\([^)]*\))?([^{{;]*)\{{"  # not of a declaration
_MOST_THREADS = re.compile(r"\.(?:maxntid|reqntid)\s+([\d\s,]+)")
_CLUSTER = re.compile(r"\.reqnctapercluster\s+([\d\s,]+)")
_MOST_CTAS = re.compile(r"\.maxclusterrank\s+(\d+)")
NO_CLUSTER = (0, 0, 0)
"""The clusters of a launch that gives no size of them."""
_PARAMETER = re.compile(r"\s\.[busf](\d+)\b[^\[]*?[\w$%]+\s*(?:\[\s*(\d+)\s*\])?\s*$")
_DEFAULT_SHARED = 8
"""cudaDevAttrMaxSharedMemoryPerBlock"""


class Resources(Record):
    """Resources of a kernel as reported by ptxas: registers and bytes of local memory of a thread,
    bytes of static shared memory of a block.
    """

    registers: int = 0
    shared_bytes: int = 0
    local_bytes: int = 0

    @property
    def allocated_registers(self) -> int:
        """Registers allocated to a thread, in units of 8."""
        return max(1, -(-self.registers // 8) * 8)


class Kernel(Record, frozen=False):
    """A __global__ function of a loaded module."""

    ptx: str
    name: str
    parameter_bytes: tuple[int, ...]
    most_threads: int | None = None
    """The most threads of a block, by the kernel's launch bounds."""
    resources: Resources = Resources()
    made_for: tuple[str, ...] = ()
    """The architectures that the module was compiled for."""
    cluster: Dim3 | None = None
    """The cluster size that the kernel itself requires; NO_CLUSTER if it leaves that to launches,
    which must ask for one."""
    most_ctas: int | None = None
    """The most thread blocks of a cluster, by the kernel's launch bounds."""
    shared_asked_for: int | None = None
    """Bytes of dynamic shared memory that host code has allowed; None for the default."""
    large_clusters: bool = False
    """Whether host code has allowed non-portable cluster sizes."""

    def clusters(self, asked: Dim3) -> Dim3:
        """Return the clusters of a launch that asks for these."""
        return asked if asked != NO_CLUSTER else self.cluster or (1, 1, 1)


def find_kernel(
    texts: tuple[str, ...], name: str, resources: dict[str, Resources], made_for: tuple[str, ...]
) -> Kernel | None:
    """Return a kernel of a module of PTX texts; None if no text has it. resources: of each
    kernel."""
    for text in texts:
        sizes = parameter_bytes(text, name)
        if sizes is not None:
            used = resources.get(name, Resources())
            directives = _directives(text, name)
            most = _numbers(_MOST_CTAS, directives)
            return Kernel(
                text, name, sizes, _most_threads(directives), used, made_for,
                _required_cluster(directives), most[0] if most else None
            )  # fmt: skip
    return None


def refuse_other_architectures(kernel: Kernel, device: Device) -> None:
    """Raise CudaError if a kernel has no code that the driver of a device would load."""
    if kernel.made_for and not any(runs_on(each, device.capability) for each in kernel.made_for):
        arch, virtual = device.arch, device.arch.replace("sm_", "compute_")
        raise CudaError(
            Code.NO_KERNEL_IMAGE_FOR_DEVICE,
            f"{kernel.name} was built for {', '.join(kernel.made_for)} and the device is an "
            f"{arch}; add -gencode=arch={virtual},code={arch}",
        )


@contextmanager
def examined(kernel: Kernel, examine: Examine) -> Iterator[None]:
    """Run calls that raise CudaError about a kernel. If the kernel cannot be judged at all, raise
    that error instead."""
    try:
        yield
    except CudaError:
        examine(kernel.ptx, kernel.name)
        raise


def dynamic_shared_said(kernel: Kernel, device: Device) -> int:
    """Bytes of dynamic shared memory that CUDA says a launch may have: what host code has asked
    for, else what static shared memory leaves of 48 KiB."""
    if kernel.shared_asked_for is not None:
        return kernel.shared_asked_for
    return max(0, device.attributes[_DEFAULT_SHARED] - kernel.resources.shared_bytes)


def dynamic_shared_limit(kernel: Kernel, device: Device) -> int:
    """Return the bytes of dynamic shared memory that a launch may have.

    A kernel with more than 48 KiB of static shared memory can use all that a block may have without
    asking, although CUDA reports 0. Source: scripts/fidelity/static_shared.cu on an H100, CUDA
    13.0, driver 580, 2026-11-23.
    """
    static = kernel.resources.shared_bytes
    if kernel.shared_asked_for is None and static > device.attributes[_DEFAULT_SHARED]:
        return device.shared_bytes_per_block - static
    return dynamic_shared_said(kernel, device)


def refuse_as_cuda_does(
    kernel: Kernel, device: Device, grid: Dim3, block: Dim3, cluster: Dim3, shared_bytes: int
) -> None:
    """Raise CudaError for an invalid launch, with CUDA's code for it.

    Source: scripts/fidelity/launch_errors.cu on an H200, CUDA 13.0, driver 580, 2026-11-21. Older
    releases say cudaErrorInvalidConfiguration for some of them.
    """
    attributes = device.attributes
    threads = block[0] * block[1] * block[2]
    name = kernel.name
    invalid = Code.INVALID_VALUE
    if threads < 1 or min(grid) < 1:
        raise CudaError(invalid, f"{name}: a grid of {grid} blocks of {block} threads")
    if threads > attributes[1] or any(n > attributes[2 + i] for i, n in enumerate(block)):
        message = f"{name}: blocks of {block} threads, {threads} in all; 1024 are the most"
        raise CudaError(invalid, message)
    if any(n > attributes[5 + i] for i, n in enumerate(grid)):
        raise CudaError(invalid, f"{name}: a grid of {grid} blocks is too large")
    most = kernel.most_threads
    if most is not None and threads > most:
        message = f"{name}: {threads} threads a block, but __launch_bounds__ says {most}"
        raise CudaError(invalid, message)
    registers = kernel.resources.registers
    if kernel.resources.allocated_registers * -(-threads // 32) * 32 > attributes[12]:
        raise CudaError(
            Code.LAUNCH_OUT_OF_RESOURCES,
            f"{name}: {threads} threads of {registers} registers; a block has {attributes[12]}",
        )
    refuse_too_much_shared(kernel, device, shared_bytes)
    refuse_clusters(kernel, device, grid, cluster)


LARGE_CLUSTERS = 14
"""cudaFuncAttributeNonPortableClusterSizeAllowed, CU_FUNC_ATTRIBUTE_..."""
_PORTABLE_CLUSTER, _LARGEST_CLUSTER = 8, 16


def refuse_clusters(kernel: Kernel, device: Device, grid: Dim3, asked: Dim3) -> None:
    """Raise CudaError for a launch with invalid clusters.

    asked: the clusters of the launch, or NO_CLUSTER. Source: cuLaunchKernelEx and cuLaunchKernel on
    an H100, driver 580, 2026-11-23, and cudaLaunchKernelEx on an H200, 2026-11-30.
    """
    cluster = kernel.clusters(asked)
    invalid, name = Code.INVALID_CLUSTER_SIZE, kernel.name
    if kernel.cluster not in (None, NO_CLUSTER, cluster):
        raise CudaError(invalid, f"{name}: clusters of {cluster}; it asks for {kernel.cluster}")
    if cluster == NO_CLUSTER:
        message = f"{name}: its __cluster_dims__ say no size, and the launch asks for none"
        raise CudaError(invalid, message)
    size = cluster[0] * cluster[1] * cluster[2]
    if kernel.most_ctas is not None and size > kernel.most_ctas:
        message = f"{name}: clusters of {cluster}, but __launch_bounds__ says {kernel.most_ctas}"
        raise CudaError(invalid, message)
    most = _LARGEST_CLUSTER if kernel.large_clusters else _PORTABLE_CLUSTER
    if size > most:
        message = f"{name}: clusters of {cluster}, {size} CTAs in all; {most} are the most"
        if size <= _LARGEST_CLUSTER:
            message += " where cudaFuncAttributeNonPortableClusterSizeAllowed is not set"
        raise CudaError(invalid, message)
    if not size or any(g % c for g, c in zip(grid, cluster, strict=True)):
        raise CudaError(invalid, f"{name}: a grid of {grid} in clusters of {cluster}")


def refuse_too_much_shared(kernel: Kernel, device: Device, dynamic: int) -> None:
    """Raise CudaError for a launch with more bytes of dynamic shared memory than are allowed."""
    allowed = dynamic_shared_limit(kernel, device)
    if dynamic <= allowed:
        return
    static, most = kernel.resources.shared_bytes, device.shared_bytes_per_block
    message = f"{kernel.name}: {dynamic} bytes of dynamic shared memory"
    if static:
        message += f" beside {static} static ones"
    if static + dynamic > most:
        message += f"; a block of {device.name} has {most} in all"
    else:
        message += f", but {allowed} are allowed; cudaFuncSetAttribute raises the limit"
    raise CudaError(Code.INVALID_VALUE, message)


def allow_dynamic_shared(kernel: Kernel, device: Device, asked: int) -> None:
    """Set a kernel's limit of dynamic shared memory to `asked` bytes. Raises CudaError."""
    most = device.shared_bytes_per_block - kernel.resources.shared_bytes
    if not 0 <= asked <= most:
        message = f"{kernel.name}: {asked} bytes of dynamic shared memory"
        raise CudaError(Code.INVALID_VALUE, f"{message}; {most} are the most on {device.name}")
    kernel.shared_asked_for = asked


def kernel_attributes(kernel: Kernel, device: Device) -> dict[int, int]:
    """Return a kernel's attributes by CUfunction_attribute; cudaFuncAttributes has the same."""
    used = kernel.resources
    by_registers = device.attributes[12] // used.allocated_registers // 32 * 32
    capability = device.capability[0] * 10 + device.capability[1]
    return {
        0: min(kernel.most_threads or 1024, by_registers, 1024),  # MAX_THREADS_PER_BLOCK
        1: used.shared_bytes,
        2: 0,  # CONST_SIZE_BYTES
        3: used.local_bytes,
        4: used.registers,
        5: capability,  # PTX_VERSION
        6: capability,  # BINARY_VERSION
        8: dynamic_shared_said(kernel, device),
    }


def blocks_per_multiprocessor(
    kernel: Kernel, device: Device, threads: int, shared_bytes: int
) -> int:
    """Return how many blocks of a kernel fit on a multiprocessor at once."""
    used, attributes = kernel.resources, device.attributes
    static = used.shared_bytes + attributes[111]
    return min(
        attributes[106],
        device.threads_per_multiprocessor // max(threads, 1),
        attributes[82] // (used.allocated_registers * 32 * max(1, -(-threads // 32))),
        device.shared_bytes_per_multiprocessor // (shared_bytes + static),
    )


def parameter_bytes(ptx: str, kernel: str) -> tuple[int, ...] | None:
    """Return the size of each parameter of a kernel; None if the module has no such kernel.

    Source: PTX ISA, kernel parameters (`.param .align 64 .b8 name[128]`, `.param .u64 name`,
    `.param .u64 .ptr .global .align 16 name`).
    """
    for entry in _ENTRY.finditer(_COMMENT.sub(" ", ptx)):
        if entry[1] != kernel:
            continue
        listed = (entry[2] or "").strip()
        return tuple(_size(part) for part in listed.split(",")) if listed else ()
    return None


def _size(parameter: str) -> int:
    matched = _PARAMETER.search(parameter.strip())
    if matched is None:
        raise UnsupportedCall(f"a parameter of a kernel that is not known: {parameter.strip()}")
    bits, count = matched.groups()
    return int(bits) // 8 * int(count or 1)


def _most_threads(directives: str) -> int | None:
    """Return the threads a block of a kernel may have by its launch bounds; None if it has none.

    Source: PTX ISA, performance-tuning directives (.maxntid, .reqntid).
    """
    bound = _numbers(_MOST_THREADS, directives)
    return math.prod(bound) if bound else None


def _required_cluster(directives: str) -> Dim3 | None:
    """Return the clusters that a kernel asks for, as by __cluster_dims__; None if it asks for none.

    Source: PTX ISA, cluster dimension directives (.reqnctapercluster, .explicitcluster).
    """
    asked = _numbers(_CLUSTER, directives)
    if asked is None:
        return NO_CLUSTER if ".explicitcluster" in directives else None
    x, y, z = (*asked, 1, 1)[:3]
    return x, y, z


def _directives(ptx: str, kernel: str) -> str:
    """Return what stands between a kernel's parameters and its body."""
    found = re.search(_DIRECTIVES.format(re.escape(kernel)), _COMMENT.sub(" ", ptx), re.DOTALL)
    return found[1] if found else ""


def _numbers(name: re.Pattern[str], directives: str) -> list[int] | None:
    """Return the numbers after a directive; None without it."""
    found = name.search(directives)
    return [int(each) for each in found[1].split(",")] if found else None
