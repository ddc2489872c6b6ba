"""A driver for Triton that has a device to compile for and hands launches over."""

import re
import threading
from operator import index
from typing import Any

from triton.backends.compiler import GPUTarget

from nvfp4.capture import stream_order
from nvfp4.capture.kernel import parameter_bytes
from nvfp4.capture.session import Session
from nvfp4.capture.torch_memory import kernel_memory
from nvfp4.capture.triton import loading as lines
from nvfp4.capture.triton.arguments import pack_arguments, pointer
from nvfp4.capture.untimed import refuse_timing
from nvfp4.records.base import Record
from nvfp4.records.launch import Launch
from nvfp4.records.launch_errors import LaunchRefused, UnsupportedCall

MOST_THREADS = 1024


class DeviceIndex(int):
    """The device index 0, but with a different hash for each architecture, since Triton keeps
    compiled kernels by device."""

    def __new__(cls, arch: str) -> "DeviceIndex":
        index = super().__new__(cls, 0)
        index.arch = arch
        return index

    arch: str

    def __eq__(self, other: object) -> bool:
        return int(self) == other and getattr(other, "arch", self.arch) == self.arch

    def __hash__(self) -> int:
        return hash(self.arch)


class Function(Record):
    """The handle of a loaded kernel in Triton."""

    name: str
    ptx: str
    arch: int
    parameter_bytes: tuple[int, ...]


class Driver:
    """The parts of Triton's driver that compiling and launching ask for."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self.utils = Utilities(session)

    @staticmethod
    def is_active() -> bool:
        return True

    def launcher_cls(self, source: Any, metadata: Any) -> "Launcher":
        """Return the launcher of a compiled kernel."""
        return Launcher(self._session, source, metadata)

    def get_current_target(self) -> GPUTarget:
        return GPUTarget("cuda", target_of(self._session), 32)

    def get_current_device(self) -> DeviceIndex:
        return DeviceIndex(self._session.device.arch)

    def set_current_device(self, device: int) -> None:
        if device != 0:
            raise LaunchRefused(f"device {device}: there is only device 0")

    def get_device_capability(self, device: int = 0) -> tuple[int, int]:
        return self._session.device.capability

    def get_current_stream(self, device: int = 0) -> int:
        """Return the handle of torch's current stream; streams are always idle."""
        if kernel_memory() == "cpu":
            return 0
        import torch

        return int(torch.cuda.current_stream().cuda_stream)

    def get_active_torch_device(self) -> Any:
        import torch

        return torch.device("cuda:0" if kernel_memory() == "cuda" else "cpu")

    def get_device_interface(self) -> Any:
        import torch

        return torch.cuda

    def get_benchmarker(self) -> Any:
        return refuse_timing("the driver's benchmarker")


def target_of(session: Session) -> int:
    """Return the number of the architecture; Triton appends the "a" itself."""
    major, minor = session.device.capability
    return major * 10 + minor


class Utilities:
    """Functions that Triton implements in C on top of the driver.

    loading: the compiled kernel that this thread is loading.
    """

    def __init__(self, session: Session) -> None:
        self._session = session
        self.loading = threading.local()

    def get_device_properties(self, device: int) -> dict[str, int]:
        known = self._session.device
        return {
            "max_shared_mem": known.shared_bytes_per_block,
            "max_num_regs": known.attributes[12],
            "multiprocessor_count": known.multiprocessors,
            "warpSize": known.attributes[10],
            "sm_clock_rate": known.clock_khz,
            "mem_clock_rate": known.memory_clock_khz,
            "mem_bus_width": known.memory_bus_bits,
        }

    def load_binary(self, name: str, binary: bytes, shared: int, device: int) -> tuple[Any, ...]:
        """(module, function, registers a thread, spilled words, most threads of a block)."""
        kernel = self.loading.kernel
        ptx = lines.corrected(kernel.asm["ptx"], kernel.src)
        sizes = parameter_bytes(ptx, name)
        if sizes is None:
            raise UnsupportedCall(f"the compiled module has no PTX of a kernel named {name}")
        function = Function(name, ptx, kernel.metadata.target.arch, sizes)
        registers, spilled = of_kernel(binary)
        return function, function, registers, spilled, MOST_THREADS

    def unload_module(self, module: Any) -> None:
        """Do nothing: there is nothing to free."""

    def set_printf_fifo_size(self, size: int) -> None:
        """Do nothing: kernel output needs no FIFO."""

    def is_stream_capturing(self, stream: int) -> bool:
        return stream_order.captures(stream)

    def __getattr__(self, name: str) -> Any:
        raise UnsupportedCall(f"{name} of Triton's driver is not available without a GPU")


class Launcher:
    """Launches one compiled kernel, called as Triton calls its own launcher."""

    def __init__(self, session: Session, source: Any, metadata: Any) -> None:
        self._session = session
        self._signature = tuple(source.signature.values())
        self._metadata = metadata

    def __call__(
        self, grid_x: int, grid_y: int, grid_z: int, stream: int, function: Function, *rest: Any
    ) -> None:
        """Launch the kernel. Raises what Triton would, LaunchRefused, and what the session's `run`
        raises."""
        _, launch_metadata, enter_hook, exit_hook, *arguments = rest
        if function.arch != target_of(self._session):
            raise LaunchRefused(f"{function.name} was compiled for sm_{function.arch}a")
        ctas = getattr(self._metadata, "num_ctas", 1)
        grid = (index(grid_x), index(grid_y), index(grid_z))
        # The scratch tensors must live until the launch has ended.
        scratch = [self._scratch(kind, grid, ctas, stream) for kind in ("global", "profile")]
        descriptors = getattr(self._metadata, "tensordesc_meta", None)
        given = function.name, self._signature, arguments, descriptors
        addresses = [pointer(each) for each in scratch]
        parameters = pack_arguments(*given, function.parameter_bytes, addresses)
        if enter_hook is not None:
            enter_hook(launch_metadata)
        # Triton launches nothing for an empty grid.
        if grid_x * grid_y * grid_z > 0:
            programmatic = bool(getattr(self._metadata, "launch_pdl", False))
            launch = Launch(
                function.ptx, function.name, (grid_x * ctas, grid_y, grid_z),
                (32 * self._metadata.num_warps, 1, 1), parameters, self._metadata.shared,
                (ctas, 1, 1), memory=self._session.memory, stream=int(stream or 0),
                programmatic=programmatic,
            )  # fmt: skip
            self._session.hand_over(launch)
        if exit_hook is not None:
            exit_hook(launch_metadata)

    def _scratch(self, kind: str, grid: tuple[int, int, int], ctas: int, stream: int) -> Any:
        """Return memory for the compiler's scratch space, from the user's allocator."""
        nbytes = getattr(self._metadata, f"{kind}_scratch_size", 0)
        if not nbytes:
            return None
        from triton.runtime import _allocation

        allocator = getattr(_allocation, "_allocator" if kind == "global" else "_profile_allocator")
        if hasattr(allocator, "get"):
            allocator = allocator.get()
        alignment = getattr(self._metadata, f"{kind}_scratch_align", 1)
        return allocator(grid[0] * grid[1] * grid[2] * ctas * nbytes, alignment, stream)


# Entries of the section .nv.info: format, attribute, size, a symbol, the value.
_REGISTERS = re.compile(rb"\x04\x2f\x08\x00..\x00\x00(.)\x00\x00\x00", re.DOTALL)
_STACK = re.compile(rb"\x04\x12\x08\x00..\x00\x00(..)\x00\x00", re.DOTALL)


def of_kernel(cubin: bytes) -> tuple[int, int]:
    """Return registers and stack words of a thread, 0 if the file does not say.

    Source: entries REGCOUNT and MIN_STACK_SIZE, as `nvdisasm` and `cuobjdump -elf` name them.
    """
    registers, stack_bytes = (
        max((int.from_bytes(value, "little") for value in entry.findall(cubin)), default=0)
        for entry in (_REGISTERS, _STACK)
    )
    return registers, stack_bytes // 4
