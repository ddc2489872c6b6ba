"""CUDA C++ as NVIDIA's headers write it: large groups, bulk reductions, intrinsics."""

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from conftest import declared

from nvfp4.capture.cuda.compilers import CompileError
from nvfp4.emulation import Emulation

SOURCE = r"""
#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>
namespace groups = cooperative_groups;

// Sums of 64 threads, exchanged through the memory that the system keeps for groups.
__global__ void sums_of_two_warps(const float* in, float* out) {
  __shared__ groups::block_tile_memory<256> memory;
  auto block = groups::this_thread_block(memory);
  auto tile = groups::tiled_partition<64>(block);
  const float sum = groups::reduce(tile, in[threadIdx.x], groups::plus<float>());
  if (tile.thread_rank() == 0) out[tile.meta_group_rank()] = sum;
}

__global__ void intrinsics(const int* in, int* out, double* roots) {
  out[threadIdx.x] = __dp4a(in[threadIdx.x], 0x01020304, 5);
  roots[threadIdx.x] = rsqrt(double(threadIdx.x + 1));
}

void run(int which, torch::Tensor a, torch::Tensor b, torch::Tensor c) {
  if (which == 0) sums_of_two_warps<<<1, 256>>>(a.data_ptr<float>(), c.data_ptr<float>());
  if (which == 1)
    intrinsics<<<1, 32>>>(a.data_ptr<int>(), b.data_ptr<int>(), c.data_ptr<double>());
}
"""

OF_SM_120 = r"""
__global__ void scaled(float* d, unsigned x) {
  float e = 0;
  asm volatile("mma.sync.aligned.%FORM% {%0,%0,%0,%0},{%1,%1,%1,%1},{%1,%1},{%0,%0,%0,%0}%SCALES%;"
               : "+f"(e) : "r"(x));
  d[threadIdx.x] = e;
}
"""


@pytest.fixture(scope="module")
def module(emulated: Emulation) -> Any:
    from torch.utils.cpp_extension import load_inline

    return load_inline("samples", declared(SOURCE, ["run"]), SOURCE, functions=["run"])


@pytest.fixture
def findings(emulated: Emulation) -> Iterator[None]:
    """There are none."""
    emulated.launches.clear()
    yield
    assert [each.findings for each in emulated.launches] == [[]]


@pytest.mark.usefixtures("findings")
def test_a_reduction_over_two_warps(module: Any) -> None:
    a, c = torch.arange(256.0).cuda(), torch.zeros(4, device="cuda")
    module.run(0, a, a, c)
    assert torch.equal(c.cpu(), a.cpu().reshape(4, 64).sum(1))


@pytest.mark.usefixtures("findings")
def test_a_dot_product_of_bytes_and_roots_of_doubles(module: Any) -> None:
    a, b = torch.full((32,), 0x0A0A0A0A, dtype=torch.int32).cuda(), torch.zeros(32).int().cuda()
    c = torch.zeros(32, dtype=torch.float64, device="cuda")
    module.run(1, a, b, c)
    assert b[0].item() == 10 * (1 + 2 + 3 + 4) + 5
    torch.testing.assert_close(c.cpu(), torch.arange(1.0, 33.0, dtype=torch.float64).rsqrt())


@pytest.mark.parametrize(
    ("form", "scales"),
    [
        (
            "m16n8k64.row.col.kind::mxf4nvf4.block_scale.scale_vec::4X.f32.e2m1.e2m1.f32.ue4m3",
            ",%1,{0,0},%1,{0,0}",
        ),
        pytest.param(
            "m16n8k32.row.col.kind::f8f6f4.f32.e2m1.e2m1.f32", "", marks=pytest.mark.corpus
        ),
    ],
)
def test_what_only_another_gpu_has_is_an_error_of_ptxas(
    emulated: Emulation, form: str, scales: str
) -> None:
    """As on a B200, where this is not built either."""
    from torch.utils.cpp_extension import load_inline

    text = OF_SM_120.replace("%FORM%", form).replace("%SCALES%", scales)
    with pytest.raises(CompileError, match=r"not supported on \.target 'sm_100'") as refused:
        load_inline("scaled", "", text, functions=[])
    assert refused.value.hint is None, "sm_100a has neither"
