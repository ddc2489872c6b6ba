"""CUDA C++ as NVIDIA's headers write it: wmma, large groups, bulk reductions, intrinsics."""

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
#include <cuda_fp16.h>
#include <mma.h>
namespace groups = cooperative_groups;
using namespace nvcuda;

// c = 2 * (a * b) of 16 x 64 and 64 x 16, a by rows and b by columns.
__global__ void tile_product(const half* a, const half* b, float* c) {
  wmma::fragment<wmma::matrix_a, 16, 16, 16, half, wmma::row_major> left;
  wmma::fragment<wmma::matrix_b, 16, 16, 16, half, wmma::col_major> right;
  wmma::fragment<wmma::accumulator, 16, 16, 16, float> sum;
  wmma::fill_fragment(sum, 0.f);
  for (int k = 0; k < 64; k += 16) {
    wmma::load_matrix_sync(left, a + k, 64);
    wmma::load_matrix_sync(right, b + k, 64);
    wmma::mma_sync(sum, left, right, sum);
  }
  for (int i = 0; i < sum.num_elements; ++i) sum.x[i] *= 2.f;
  wmma::store_matrix_sync(c, sum, 16, wmma::mem_row_major);
}

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
  if (which == 0)
    tile_product<<<1, 32>>>((const half*)a.data_ptr(), (const half*)b.data_ptr(),
                            c.data_ptr<float>());
  if (which == 1) sums_of_two_warps<<<1, 256>>>(a.data_ptr<float>(), c.data_ptr<float>());
  if (which == 2)
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
def test_a_product_by_wmma(module: Any) -> None:
    a = torch.randint(-3, 4, (16, 64)).half().cuda()
    b = torch.randint(-3, 4, (16, 64)).half().cuda()
    c = torch.zeros(16, 16, device="cuda")
    module.run(0, a, b, c)
    assert torch.equal(c.cpu(), 2 * (a.cpu().float() @ b.cpu().float().T))


@pytest.mark.usefixtures("findings")
def test_a_reduction_over_two_warps(module: Any) -> None:
    a, c = torch.arange(256.0).cuda(), torch.zeros(4, device="cuda")
    module.run(1, a, a, c)
    assert torch.equal(c.cpu(), a.cpu().reshape(4, 64).sum(1))


@pytest.mark.usefixtures("findings")
def test_a_dot_product_of_bytes_and_roots_of_doubles(module: Any) -> None:
    a, b = torch.full((32,), 0x0A0A0A0A, dtype=torch.int32).cuda(), torch.zeros(32).int().cuda()
    c = torch.zeros(32, dtype=torch.float64, device="cuda")
    module.run(2, a, b, c)
    assert b[0].item() == 10 * (1 + 2 + 3 + 4) + 5
    torch.testing.assert_close(c.cpu(), torch.arange(1.0, 33.0, dtype=torch.float64).rsqrt())


@pytest.mark.parametrize(
    ("form", "scales"),
    [
        (
            "m16n8k64.row.col.kind::mxf4nvf4.block_scale.scale_vec::4X.f32.e2m1.e2m1.f32.ue4m3",
            ",%1,{0,0},%1,{0,0}",
        ),
        ("m16n8k32.row.col.kind::f8f6f4.f32.e2m1.e2m1.f32", ""),
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
