"""How tensors lie in memory, and how they get there and back."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from nvfp4.contract.layout import input_names, layouts, names, storages
from nvfp4.contract.reference import generate_full_range_input

shapes = st.tuples(st.integers(1, 300), st.integers(1, 8).map(lambda n: 64 * n), st.integers(1, 3))


def as_bytes(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.view(torch.uint8) if tensor.dtype.itemsize == 1 else tensor


def test_names_stand_in_the_order_of_the_call() -> None:
    assert names == ("a", "b", "sfa", "sfb", "sfa_permuted", "sfb_permuted", "c")
    assert input_names == names[:-1]
    assert tuple(layouts(128, 64, 1)) == names


@given(shapes)
def test_bytes_go_flat_and_come_back_the_same(shape: tuple[int, int, int]) -> None:
    data = generate_full_range_input(*shape, 1)
    flat = storages(data, *shape)
    for (name, layout), tensor in zip(layouts(*shape).items(), data, strict=True):
        assert flat[name].dtype == torch.uint8
        assert flat[name].shape == (layout.nbytes,)
        again = layout.view(flat[name])
        assert (again.shape, again.dtype) == (tensor.shape, tensor.dtype)
        assert torch.equal(as_bytes(again), as_bytes(tensor))


@given(shapes)
def test_a_view_shares_its_bytes_with_the_storage(shape: tuple[int, int, int]) -> None:
    for layout in layouts(*shape).values():
        flat = torch.zeros(layout.nbytes, dtype=torch.uint8)
        view = layout.view(flat)
        assert view.data_ptr() == flat.data_ptr()
        assert layout.flat(view).data_ptr() == flat.data_ptr()
        assert view.shape == tuple(layout.storage_shape[d] for d in layout.order)


@pytest.mark.parametrize("name", names)
def test_a_tensor_that_lies_otherwise_is_laid_out(name: str) -> None:
    layout = layouts(130, 128, 2)[name]
    flat = torch.arange(layout.nbytes).to(torch.uint8) & 0x3B
    elsewhere = as_bytes(layout.view(flat)).clone(memory_format=torch.contiguous_format)
    moved = elsewhere.view(layout.dtype) if layout.dtype.itemsize == 1 else elsewhere
    assert torch.equal(layout.flat(moved), flat)


@given(shapes)
def test_sizes_are_those_of_the_contract(shape: tuple[int, int, int]) -> None:
    m, k, l = shape
    rest_m = -(-m // 128)
    sizes = {name: layout.nbytes for name, layout in layouts(m, k, l).items()}
    assert sizes == {
        "a": l * m * k // 2,
        "b": l * 128 * k // 2,
        "sfa": l * m * k // 16,
        "sfb": l * 128 * k // 16,
        "sfa_permuted": l * rest_m * 128 * k // 16,
        "sfb_permuted": l * 128 * k // 16,
        "c": l * m * 2,
    }
