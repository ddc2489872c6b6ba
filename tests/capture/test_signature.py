"""The sizes of a kernel's parameters, read from its PTX."""

import pytest

from nvfp4.capture.kernel import NO_CLUSTER, find_kernel, parameter_bytes


@pytest.mark.parametrize(
    ("parameters", "sizes"),
    [
        ("", ()),
        ("()", ()),
        ("(.param .u64 a, .param .u32 n)", (8, 4)),
        ("(\n\t.param .u64 .ptr .global .align 16 a_param_0,\n\t.param .f32 x)", (8, 4)),
        ("(.param .align 64 .b8 map[128], .param .b8 flag)", (128, 1)),
        ("(.param .align 8 .b8 k_param_0[24] // a struct, with a comma\n)", (24,)),
        ("(.param .u64 .ptr a)", (8,)),
    ],
)
def test_sizes_of_parameters(parameters: str, sizes: tuple[int, ...]) -> None:
    text = f".visible .entry other(.param .u8 b) {{ret;}}\n.visible .entry k{parameters}\n{{ret;}}"
    assert parameter_bytes(text, "k") == sizes
    assert parameter_bytes(text, "other") == (1,)
    assert parameter_bytes(text, "missing") is None


def test_launch_bounds_are_those_of_the_definition() -> None:
    ptx = """
.visible .entry k(.param .u64 k_param_0);
.visible .entry other() .maxntid 64 .explicitcluster .maxclusterrank 4 { ret; }
.visible .entry k(.param .u64 k_param_0) .maxntid 2, 3 .reqnctapercluster 2 { ret; }
.visible .entry plain() { ret; }
"""
    found = {name: find_kernel((ptx,), name, {}, ()) for name in ("k", "other", "plain", "absent")}
    bounds = {name: (k.most_threads, k.cluster, k.most_ctas) for name, k in found.items() if k}
    assert bounds == {
        "k": (6, (2, 1, 1), None), "other": (64, NO_CLUSTER, 4), "plain": (None, None, None)
    }  # fmt: skip
