"""The inputs of a wrong call as bytes and as numbers."""

from typing import Any

import numpy as np
import torch

from nvfp4.problems.nvfp4_gemv.reference import exact_gemv
from nvfp4.problems.nvfp4_gemv.task import e2m1_values, input_t
from nvfp4.records.base import Record

Array = Any
"""A NumPy array."""

_by_code = np.array(e2m1_values)
_pairs = np.stack([_by_code[np.arange(256) & 15], _by_code[np.arange(256) >> 4]], axis=1)
e4m3_values: Array = torch.arange(256, dtype=torch.uint8).view(torch.float8_e4m3fn).double().numpy()
"""float64 [256]: the value of each E4M3 code."""


def unpacked(packed: Array) -> Array:
    """Return FP4 bytes uint8 [..., k//2] as values float64 [..., k]."""
    return _pairs[packed].reshape(*packed.shape[:-1], -1)


def packed_of(codes: Array) -> Array:
    """Return codes uint8 [..., k] as FP4 bytes uint8 [..., k//2]."""
    return np.ascontiguousarray(codes[..., ::2] | (codes[..., 1::2] << 4))


class Operands(Record):
    """Raw bytes that a kernel may read for some rows of one batch."""

    a: Array
    """uint8 [rows, k//2]."""
    b: Array
    """uint8 [k//2]."""
    sfa: Array
    """uint8 [rows, k//16]."""
    sfb: Array
    """uint8 [k//16]."""

    def exact(self) -> Array:
        """Return the result before it is rounded: float64 [rows]."""
        a, b, sfa, sfb = (
            torch.from_numpy(np.ascontiguousarray(each))
            for each in (self.a, self.b, self.sfa, self.sfb)
        )
        e4m3 = torch.float8_e4m3fn
        return exact_gemv(a, b, sfa.view(e4m3), sfb.view(e4m3)).numpy()

    def products(self) -> Array:
        """Return the products that are added up: float64 [rows, k]."""
        scale = e4m3_values[self.sfa] * e4m3_values[self.sfb]
        return unpacked(self.a) * unpacked(self.b) * np.repeat(scale, 16, axis=1)


class Inputs(Record):
    """The raw storage of every input: uint8, contiguous."""

    a: Array
    """[l, m, k//2]."""
    b: Array
    """[l, 128, k//2]."""
    sfa: Array
    """[l, m, k//16]."""
    sfb: Array
    """[l, 128, k//16]."""
    sfa_permuted: Array
    """Flat."""
    sfb_permuted: Array
    """Flat."""
    c: Array
    """The contents of c before the call, float64 [m, l]."""

    def operands(self, batch: int, rows: Array) -> Operands:
        """Return the operands of some rows."""
        return Operands(
            self.a[batch, rows], self.b[batch, 0], self.sfa[batch, rows], self.sfb[batch, 0]
        )

    @property
    def shape(self) -> tuple[int, int, int]:
        """m, k, l."""
        l, m, packed = self.a.shape
        return m, 2 * packed, l


def read_inputs(data: input_t) -> Inputs:
    """Return the storages of the tensors that ``custom_kernel`` got, copied from a GPU."""

    def raw(tensor: torch.Tensor, order: tuple[int, ...]) -> Array:
        return tensor.view(torch.uint8).permute(order).contiguous().cpu().numpy()

    found = [raw(each, (2, 0, 1)) for each in data[:4]]
    found += [raw(each, (5, 2, 4, 0, 1, 3)).reshape(-1) for each in data[4:6]]
    found.append(data[6][:, 0, :].double().cpu().numpy())
    return Inputs(*found)
