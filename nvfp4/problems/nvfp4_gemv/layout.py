"""How the tensors of a case lie in memory."""

import torch

from nvfp4.problems import fp4_gemm
from nvfp4.problems.nvfp4_gemv.task import n_padded, sf_vec_size
from nvfp4.records.base import Record


class Layout(Record):
    """The layout of a tensor: stored contiguously as ``storage_shape`` and seen permuted by
    ``order``."""

    storage_shape: tuple[int, ...]
    dtype: torch.dtype
    order: tuple[int, ...]

    @property
    def nbytes(self) -> int:
        return torch.Size(self.storage_shape).numel() * self.dtype.itemsize

    def view(self, flat: torch.Tensor) -> torch.Tensor:
        """Return the tensor over its flat uint8 storage."""
        # Shaped as bytes: FP4 cannot be reshaped.
        return flat.view(*self.storage_shape[:-1], -1).view(self.dtype).permute(self.order)

    def flat(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return the flat uint8 storage of a tensor; a copy only if the tensor is laid out
        differently."""
        back = tuple(self.order.index(dimension) for dimension in range(len(self.order)))
        raw = tensor.view(torch.uint8) if self.dtype.itemsize == 1 else tensor
        return raw.permute(back).contiguous().view(-1).view(torch.uint8)


def layouts(m: int, k: int, l: int) -> dict[str, Layout]:
    """Return the layouts of the seven tensors, in the order of ``custom_kernel``."""
    k_packed, k_blocks = k // 2, k // sf_vec_size
    rest_m, rest_k = -(-m // 128), -(-k_blocks // 4)
    plain, permuted = (1, 2, 0), (3, 4, 1, 5, 2, 0)
    fp4, fp8 = torch.float4_e2m1fn_x2, torch.float8_e4m3fn
    return {
        "a": Layout((l, m, k_packed), fp4, plain),
        "b": Layout((l, n_padded, k_packed), fp4, plain),
        "sfa": Layout((l, m, k_blocks), fp8, plain),
        "sfb": Layout((l, n_padded, k_blocks), fp8, plain),
        "sfa_permuted": Layout((l, rest_m, rest_k, 32, 4, 4), fp8, permuted),
        "sfb_permuted": Layout((l, 1, rest_k, 32, 4, 4), fp8, permuted),
        "c": Layout((l, m, 1), torch.float16, plain),
    }


_of_a = fp4_gemm.dimensions

dimensions = _of_a | {"b": _of_a["a"], "sfb": _of_a["sfa"], "sfb_permuted": _of_a["sfa_permuted"]}
"""Dimensions by the tensor's name, for messages."""


def small_inputs() -> tuple[torch.Tensor, ...]:
    """Return zeros for the tensors of a small case, with custom_kernel's dtypes and strides, in
    host memory."""
    found = layouts(128, 256, 1).values()
    return tuple(each.view(torch.zeros(each.nbytes, dtype=torch.uint8)) for each in found)
