"""Clusters and programmatic launches of CUDA C++ on the stand-in device, by the runtime's calls."""

from typing import Any

import pytest
import torch
from conftest import declared

from nvfp4.emulation import Emulation
from nvfp4.emulator.errors import EarlyAccess

CUDA = r"""
#include <cooperative_groups.h>
#include <cuda_runtime.h>
#include <string>

namespace cg = cooperative_groups;

__global__ void ranks(int* out) {
  cg::cluster_group cluster = cg::this_cluster();
  out[blockIdx.x] = 100 * cluster.num_blocks() + cluster.block_rank();
}
__global__ void __cluster_dims__(2, 1, 1) pairs(int* out) {
  out[blockIdx.x] = cg::this_cluster().block_rank();
}
__global__ void large(int* out) { out[blockIdx.x] = cg::this_cluster().block_rank(); }
__global__ void first(int* x) {
  cudaTriggerProgrammaticLaunchCompletion();
  x[threadIdx.x] = threadIdx.x + 5;
}
template <bool kWaits> __global__ void second(const int* x, int* y) {
  if (kWaits) cudaGridDependencySynchronize();
  y[threadIdx.x] = x[threadIdx.x] + 1;
}

static int* ptr(const torch::Tensor& t) { return t.data_ptr<int>(); }

template <class... Parameters, class... Arguments>
static std::string launch(void (*kernel)(Parameters...), int grid, int block, int cluster,
                          bool programmatic, Arguments... arguments) {
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(grid);
  config.blockDim = dim3(block);
  cudaLaunchAttribute attributes[2] = {};
  if (cluster) {
    attributes[0].id = cudaLaunchAttributeClusterDimension;
    attributes[0].val.clusterDim.x = cluster;
    attributes[0].val.clusterDim.y = attributes[0].val.clusterDim.z = 1;
  } else {
    attributes[0].id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attributes[0].val.programmaticStreamSerializationAllowed = programmatic;
  }
  config.attrs = attributes;
  config.numAttrs = 1;
  cudaLaunchKernelEx(&config, kernel, Parameters(arguments)...);
  return cudaGetErrorName(cudaGetLastError());
}
std::string in_clusters(torch::Tensor t, int grid, int cluster) {
  return launch(ranks, grid, 1, cluster, false, ptr(t));
}
std::string in_pairs(torch::Tensor t, int grid, int cluster) {
  if (cluster) return launch(pairs, grid, 1, cluster, false, ptr(t));
  pairs<<<grid, 1>>>(ptr(t));
  return cudaGetErrorName(cudaGetLastError());
}
std::string in_large_clusters(torch::Tensor t, int cluster) {
  cudaFuncSetAttribute(large, cudaFuncAttributeNonPortableClusterSizeAllowed, 1);
  return launch(large, 32, 1, cluster, false, ptr(t));
}
void begin(torch::Tensor x) { first<<<1, 32>>>(ptr(x)); }
void end(torch::Tensor x, torch::Tensor y) {
  launch(second<false>, 1, 32, 0, true, ptr(x), ptr(y));
}
void chain(torch::Tensor x, torch::Tensor y, bool waits, bool programmatic, bool synchronises) {
  begin(x);
  if (synchronises) cudaDeviceSynchronize();
  if (waits) launch(second<true>, 1, 32, 0, programmatic, ptr(x), ptr(y));
  else launch(second<false>, 1, 32, 0, programmatic, ptr(x), ptr(y));
}
"""
FUNCTIONS = ["in_clusters", "in_pairs", "in_large_clusters", "begin", "end", "chain"]


@pytest.fixture(scope="module")
def extension(emulated: Emulation) -> Any:
    from torch.utils.cpp_extension import load_inline

    return load_inline("clusters_of_blocks", declared(CUDA, FUNCTIONS), CUDA, functions=FUNCTIONS)


def words(count: int) -> torch.Tensor:
    return torch.full((count,), -1, dtype=torch.int32, device="cuda")


def test_the_attribute_of_a_launch_makes_clusters(extension: Any) -> None:
    out = words(8)
    assert extension.in_clusters(out, 8, 4) == "cudaSuccess"
    assert out.tolist() == [400, 401, 402, 403] * 2


@pytest.mark.parametrize(("grid", "cluster"), [(6, 4), (16, 16), (3, 2)])
def test_clusters_that_cuda_refuses(extension: Any, grid: int, cluster: int) -> None:
    out = words(16)
    assert extension.in_clusters(out, grid, cluster) == "cudaErrorInvalidClusterSize"
    assert out.tolist() == [-1] * 16


def test_a_kernel_that_asks_for_clusters_itself(extension: Any) -> None:
    out = words(4)
    assert extension.in_pairs(out, 4, 0) == "cudaSuccess"
    assert out.tolist() == [0, 1, 0, 1]
    assert extension.in_pairs(out, 3, 0) == "cudaErrorInvalidClusterSize"
    assert extension.in_pairs(out, 4, 4) == "cudaErrorInvalidClusterSize"


def test_clusters_of_sixteen_where_they_are_allowed(extension: Any) -> None:
    out = words(32)
    assert extension.in_large_clusters(out, 16) == "cudaSuccess"
    assert out.tolist() == list(range(16)) * 2
    assert extension.in_large_clusters(out, 32) == "cudaErrorInvalidClusterSize"


@pytest.mark.parametrize(
    ("waits", "programmatic", "synchronises", "early"),
    [
        (True, True, False, False),
        (False, True, False, True),
        (False, False, False, False),
        (False, True, True, False),
    ],
)
def test_a_launch_that_may_begin_early_waits_for_what_it_reads(
    extension: Any,
    emulated: Emulation,
    waits: bool,
    programmatic: bool,
    synchronises: bool,
    early: bool,
) -> None:
    x, y = words(32), words(32)
    if early:
        with pytest.raises(EarlyAccess, match="no griddepcontrol"):
            extension.chain(x, y, waits, programmatic, synchronises)
        return
    extension.chain(x, y, waits, programmatic, synchronises)
    assert emulated.launches[-1].findings == []
    assert y.tolist() == list(range(6, 38))


def test_what_torch_does_between_lets_nothing_begin_early(
    extension: Any, emulated: Emulation
) -> None:
    x, y = words(32), words(32)
    extension.begin(x)
    x.add_(1)
    extension.end(x, y)
    assert emulated.launches[-1].findings == []
    assert y.tolist() == list(range(7, 39))
    extension.begin(x)
    torch.empty(8, device="cuda")
    with pytest.raises(EarlyAccess):
        extension.end(x, y)
