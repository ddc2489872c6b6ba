"""The kernel on integer tensor cores that the submission is compared with is right."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from benchmarks.tensor_core_gemv import Variant, exports, variants
from nvfp4.cli.main import main

wrapper = '''
from torch.utils.cpp_extension import load_inline

source = r"""
#include <torch/extension.h>
{source}
void forward(at::Tensor a, at::Tensor b, at::Tensor sfa, at::Tensor sfb, at::Tensor c) {{
  void* tensors[5] = {{a.data_ptr(), b.data_ptr(), sfa.data_ptr(), sfb.data_ptr(), c.data_ptr()}};
  {name}(tensors, a.size(0), a.size(1) / 16, c.size(2), nullptr);
}}
"""
module = load_inline(
    name="tensor_core_gemv",
    cpp_sources="void forward(at::Tensor, at::Tensor, at::Tensor, at::Tensor, at::Tensor);",
    cuda_sources=source,
    functions=["forward"],
    extra_cuda_cflags=["-O3", "-gencode=arch=compute_90a,code=sm_90a"],
)


def custom_kernel(data):
    a, b, sfa, sfb, _, _, c = data
    module.forward(a, b, sfa, sfb, c)
    return c
'''


@pytest.mark.corpus
@pytest.mark.parametrize(
    ("variant", "shape"),
    [
        (Variant(2, 2, 2, 1, 2), "128,2048,2"),  # whole
        (Variant(2, 2, 2, 1, 2), "200,1088,1"),  # neither rows nor k end with a CTA
        (Variant(1, 4, 2, 2, 1), "64,2048,1"),
        (Variant(2, 2, 4, 4, 2), "72,4224,3"),
    ],
)
def test_a_variant_is_exact(variant: Variant, shape: str, tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text(wrapper.format(source=exports(variant), name=variant.name))
    done = CliRunner().invoke(main, ["check", str(path), "--arch", "sm_90a", "--shape", shape])
    assert done.output.startswith("passed at"), done.output


def test_every_variant_covers_k_and_fits() -> None:
    for k in (2048, 7168, 16384):
        for variant in variants(k):
            assert variant.warps * variant.steps * 1024 >= k
            assert 2 * variant.shared_bytes <= 228 << 10
            assert variant.stages <= variant.groups * variant.steps
