"""How the tensors of a case lie in memory."""

from dataclasses import dataclass
from typing import Any

import torch

from nvfp4.contract.task import input_t, n_padded, output_dtypes, sf_vec_size

input_names = ("a", "b", "sfa", "sfb", "sfa_permuted", "sfb_permuted")
names = (*input_names, "c")


@dataclass(frozen=True)
class Layout:
    """Stored contiguously as ``storage_shape`` and seen permuted by ``order``."""

    storage_shape: tuple[int, ...]
    dtype: torch.dtype
    order: tuple[int, ...]

    @property
    def nbytes(self) -> int:
        return torch.Size(self.storage_shape).numel() * self.dtype.itemsize

    def view(self, flat: torch.Tensor) -> torch.Tensor:
        """The tensor over its flat uint8 storage."""
        # Shaped as bytes: FP4 cannot be reshaped.
        shaped = flat.view(*self.storage_shape[:-1], -1)
        return shaped.view(self.dtype).permute(self.order)

    def flat(self, tensor: torch.Tensor) -> torch.Tensor:
        """The flat uint8 storage of a tensor; a copy only if it lies otherwise."""
        back = tuple(self.order.index(dimension) for dimension in range(len(self.order)))
        raw = tensor.view(torch.uint8) if self.dtype.itemsize == 1 else tensor
        return raw.permute(back).contiguous().view(-1).view(torch.uint8)


def layouts(m: int, k: int, l: int) -> dict[str, Layout]:
    """Of the seven tensors, in the order of ``custom_kernel``."""
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


dtype_by_name = {str(dtype).removeprefix("torch."): dtype for dtype in output_dtypes}


def output_view(flat: torch.Tensor, m: int, l: int, dtype: torch.dtype) -> torch.Tensor:
    """The output [m, 1, l] over the flat uint8 buffer that takes it."""
    return flat[: m * l * dtype.itemsize].view(dtype).view(l, m, 1).permute(1, 2, 0)


def total_bytes(m: int, k: int, l: int) -> int:
    return sum(layout.nbytes for layout in layouts(m, k, l).values())


def storages(data: input_t, m: int, k: int, l: int) -> dict[str, torch.Tensor]:
    """The flat uint8 storage of every tensor."""
    pairs = zip(layouts(m, k, l).items(), data, strict=True)
    return {name: layout.flat(tensor) for (name, layout), tensor in pairs}


_scale_dimensions = (
    ("row % 32", "32"), ("row // 32 % 4", "4"), ("row // 128", "rest_m"),
    ("k block % 4", "4"), ("k block // 4", "rest_k"), ("batch", "l"),
)  # fmt: skip

dimensions = {
    **dict.fromkeys(("a", "b"), (("row", "m"), ("byte of k", "k/2"), ("batch", "l"))),
    **dict.fromkeys(("sfa", "sfb"), (("row", "m"), ("k block", "k/16"), ("batch", "l"))),
    **dict.fromkeys(("sfa_permuted", "sfb_permuted"), _scale_dimensions),
    "c": (("row", "m"), ("column", "n"), ("batch", "l")),
}
"""By the tensor's name, for messages."""


def described_buffers(shape: tuple[int, int, int], offsets: dict[str, int]) -> list[Any]:
    """The buffers of a case (m, k, l) that launches may touch, as `Execute` has them."""
    described = []
    for name, layout in layouts(*shape).items():
        view = layout.view(torch.empty(layout.nbytes, dtype=torch.uint8, device="meta"))
        strides = [each * view.element_size() for each in view.stride()]
        described.append(
            [
                name,
                offsets[name],
                layout.nbytes,
                name == "c",
                list(view.shape),
                strides,
                [list(pair) for pair in dimensions[name]],
            ]
        )
    return described
