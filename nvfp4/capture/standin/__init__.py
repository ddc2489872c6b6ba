"""A CUDA device for torch where there is none: tensors that say they are CUDA, in host memory.

with standin.install("sm_100a"):
    data = tuple(standin.adopt(tensor) for tensor in inputs)
    output = custom_kernel(data)  # code written for a B200, unchanged

Tensors on it are plain `torch.Tensor`s whose device is cuda:0, for Python and for C++, in every
thread; `data_ptr()` is a host address. Operators are the CPU's (`kernels`), mixing devices is
refused as on a GPU, a CPU tensor stays a CPU tensor. The rest of the process sees one GPU too, for
as long as this is installed: to detect a real GPU, check before.

Nothing runs asynchronously and no time can be measured: events refuse to return one.
"""

from contextlib import AbstractContextManager

import torch

from nvfp4.capture.device import device_for
from nvfp4.capture.patches import Patches
from nvfp4.capture.standin.cuda_module import replace_cuda_module
from nvfp4.capture.standin.functions import replace_functions
from nvfp4.capture.standin.kernels import Kernels
from nvfp4.capture.standin.memory import DeviceGuard, as_cpu, as_cuda

_installed: "StandIn | None" = None


class StandIn(AbstractContextManager["StandIn"]):
    """The stand-in while it is installed; a context manager that uninstalls.

    device: the pretended GPU, a `capture.device.Device`.
    """

    def __init__(self, arch: str) -> None:
        self.device = device_for(arch)
        generator = torch.Generator()
        self._patches = Patches()
        try:
            replace_functions(self._patches)
            replace_cuda_module(self._patches, self.device, generator)
            self._guard = DeviceGuard()
        except BaseException:
            self._patches.undo()
            raise
        self._kernels = Kernels(generator)

    def uninstall(self) -> None:
        """Leave torch as it was. CUDA tensors that are left over can no longer be used."""
        global _installed
        if _installed is self:
            _installed = None
            self._kernels.remove()
            self._guard.remove()
            self._patches.undo()

    def __exit__(self, *error: object) -> None:
        self.uninstall()


def install(arch: str = "sm_100a") -> StandIn:
    """Make torch have a CUDA device from now on: a B200 for sm_100*, an H100 for sm_90*.

    Raises ValueError for another architecture, and RuntimeError where a real CUDA device is
    there or a stand-in is installed already.
    """
    global _installed
    if _installed is not None:
        raise RuntimeError("a stand-in for a CUDA device is installed already")
    if torch.cuda.is_available():
        raise RuntimeError("this machine has a CUDA device and needs no stand-in for one")
    _installed = StandIn(arch)
    return _installed


def is_installed() -> bool:
    """Whether CUDA tensors of this process lie in host memory."""
    return _installed is not None


def adopt(tensor: torch.Tensor) -> torch.Tensor:
    """Return a CUDA tensor on the memory of a CPU tensor, with its dtype, sizes, strides and
    offset.

    Raises RuntimeError unless the stand-in is installed; a CUDA tensor is returned as it is.
    """
    _require_installed()
    return tensor if tensor.is_cuda else as_cuda(tensor)


def host_view(tensor: torch.Tensor) -> torch.Tensor:
    """Return a CPU tensor on the memory of a CUDA tensor, which reverses `adopt`.

    Nothing is copied. Raises RuntimeError unless the stand-in is installed; a CPU tensor is
    returned as it is.
    """
    _require_installed()
    return as_cpu(tensor) if tensor.is_cuda else tensor


def _require_installed() -> None:
    if _installed is None:
        raise RuntimeError("no stand-in for a CUDA device is installed")
