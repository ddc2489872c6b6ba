"""Calls of the CUDA runtime, clusters, and kernels as NVIDIA's headers write them."""

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from conftest import declared
from torch.utils import cpp_extension

from nvfp4.capture import stream_order
from nvfp4.capture.cuda.compilers import CompileError
from nvfp4.emulation import Emulation
from nvfp4.emulator.errors import EarlyAccess
from nvfp4.records.launch_errors import LaunchRefused, UnsupportedCall

CUDA = r"""
#include <torch/extension.h>
#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>
#include <cuda_profiler_api.h>
#include <string>
namespace cg = cooperative_groups;

__global__ void fill(float* out, float value) { out[threadIdx.x] = value; }

int profile() { return cudaProfilerStart() | cudaProfilerStop(); }
std::vector<int64_t> zeros_in_new_memory(torch::Tensor t) {
  std::vector<int64_t> zeros;
  for (int which = 0; which < 4; ++which) {
    float* space; float* out = t.data_ptr<float>();
    const size_t size = t.numel() * sizeof(float);
    if (which < 2) cudaMalloc(&space, size);
    if (which == 2) cudaMallocAsync(&space, size, 0);
    if (which == 3) cudaMallocManaged(&space, size);
    if (which == 0) cudaMemset(space, 0, size);
    cudaMemcpy(out, space, size, cudaMemcpyDeviceToDevice);
    cudaFree(space);
    zeros.push_back(0);
    for (int i = 0; i < t.numel(); ++i) zeros.back() += !out[i];
  }
  return zeros;
}
int in_a_stream(torch::Tensor t) {
  cudaStream_t stream; cudaEvent_t event; void* space;
  int wrong = cudaStreamCreate(&stream) | cudaEventCreate(&event);
  fill<<<1, 1, 0, stream>>>(t.data_ptr<float>(), 1.f);
  wrong |= cudaGetLastError() | cudaEventRecord(event, stream);
  wrong |= cudaStreamWaitEvent(0, event) | cudaMallocAsync(&space, 64, stream);
  wrong |= cudaMemsetAsync(space, 0, 64, stream) | cudaStreamSynchronize(stream);
  wrong |= cudaFreeAsync(space, stream) | cudaStreamDestroy(stream) | cudaEventDestroy(event);
  return wrong;
}
std::vector<int64_t> misused() {
  cudaEvent_t event = nullptr, gone; cudaStream_t stream;
  void *device, *pinned; int each = 0, count = 0;
  cudaMalloc(&device, 4); cudaMallocHost(&pinned, 4);
  cudaStreamCreate(&stream); cudaEventCreate(&gone); cudaEventDestroy(gone);
  cudaOccupancyMaxActiveBlocksPerMultiprocessor(&each, fill, 32, 48 * 1024 + 1);
  std::vector<int64_t> codes = {
      cudaEventRecord(event, 0), cudaStreamWaitEvent(stream, gone, 0), cudaEventDestroy(gone),
      cudaStreamDestroy(0), cudaStreamDestroy(stream), cudaStreamSynchronize(stream),
      cudaFree(pinned), cudaFreeHost(device), cudaFree(device), cudaFreeHost(pinned),
      cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, 1),
      cudaOccupancyMaxActiveBlocksPerMultiprocessor(&count, fill, 0, 0), each,
      cudaFuncSetAttribute(fill, cudaFuncAttributePreferredSharedMemoryCarveout, -1),
      cudaFuncSetAttribute(fill, cudaFuncAttributePreferredSharedMemoryCarveout, 101)};
  return cudaGetLastError() ? codes : std::vector<int64_t>();
}
int fill_in(torch::Tensor t, int64_t stream) {
  fill<<<1, 1, 0, (cudaStream_t)stream>>>(t.data_ptr<float>(), 3.f);
  return cudaGetLastError();
}
int copy_in(torch::Tensor t, int64_t stream) {
  float* at = t.data_ptr<float>();
  cudaMemsetAsync(at, 0, 4, (cudaStream_t)stream);
  return cudaMemcpyAsync(at + 1, at, 4, cudaMemcpyDeviceToDevice, (cudaStream_t)stream);
}
void moves(int64_t way) {
  int word, *space; cudaMallocAsync(&space, 4, 0);
  if (way == 1) cudaMemcpy(space, &word, 4, cudaMemcpyHostToDevice);
  if (way == 2) cudaMemcpyAsync(&word, space, 4, cudaMemcpyDeviceToHost);
  if (way == 3) cudaMemcpyAsync(space, &word, 4, cudaMemcpyHostToDevice);
  way ? cudaFreeAsync(space, 0) : cudaFree(space);
}
int texture() {
  cudaTextureObject_t made = 0;
  cudaResourceDesc resource = {}; cudaTextureDesc described = {};
  return cudaCreateTextureObject(&made, &resource, &described, nullptr);
}
void channel() { cudaCreateChannelDesc<float>(); }
__global__ void rank_in_grid(float* out) {
  cooperative_groups::this_grid().sync();
  if (threadIdx.x == 0) out[blockIdx.x] = blockIdx.x;
}
std::vector<int64_t> cooperative(torch::Tensor t) {
  float* out = t.data_ptr<float>();
  void* arguments[] = {&out};
  int each = 0, multiprocessors = 0;
  cudaOccupancyMaxActiveBlocksPerMultiprocessor(&each, rank_in_grid, 1024, 0);
  cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, 0);
  const int fit = each * multiprocessors;
  auto launch = [&](int blocks) {
    cudaLaunchCooperativeKernel((void*)rank_in_grid, dim3(blocks), dim3(1024), arguments, 0, 0);
    return cudaGetLastError();
  };
  cudaFuncSetAttribute(rank_in_grid, cudaFuncAttributeNonPortableClusterSizeAllowed, 1);
  cudaLaunchAttribute asked[2];
  asked[0].id = cudaLaunchAttributeCooperative;
  asked[0].val.cooperative = 1;
  asked[1].id = cudaLaunchAttributeClusterDimension;
  asked[1].val.clusterDim = {16, 1, 1};
  cudaLaunchConfig_t config = {dim3(fit / 16 * 16), dim3(1024), 0, 0, asked, 2};
  cudaLaunchKernelExC(&config, (void*)rank_in_grid, arguments);
  const int in_clusters = cudaGetLastError();
  return {launch(t.numel()), launch(t.numel()), launch(fit + 1), in_clusters};
}
__global__ void ranks(int* out) {
  cg::cluster_group cluster = cg::this_cluster();
  out[blockIdx.x] = 100 * cluster.num_blocks() + cluster.block_rank();
}
__global__ void __cluster_dims__(2, 1, 1) pairs(int* out) {
  out[blockIdx.x] = cg::this_cluster().block_rank();
}
__global__ void __cluster_dims__() of_any_size(int* out) { out[blockIdx.x] = 1; }
__global__ void __launch_bounds__(64, 1, 4) of_four(int* out) { out[blockIdx.x] = 1; }
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
std::string in_clusters_of_launches(torch::Tensor t, bool any, int cluster) {
  return launch(any ? of_any_size : of_four, 8, 1, cluster, false, ptr(t));
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

// Sums of 64 threads, exchanged through the memory that the system keeps for groups.
__global__ void sums_of_two_warps(const float* in, float* out) {
  __shared__ cg::block_tile_memory<256> memory;
  auto block = cg::this_thread_block(memory);
  auto tile = cg::tiled_partition<64>(block);
  const float sum = cg::reduce(tile, in[threadIdx.x], cg::plus<float>());
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

NAMES = [
    *("profile", "in_a_stream", "fill_in", "copy_in", "moves", "zeros_in_new_memory"),
    *("texture", "channel", "cooperative", "misused"),
    *("in_clusters", "in_clusters_of_launches", "in_pairs", "in_large_clusters"),
    *("run", "begin", "end", "chain"),
]


@pytest.fixture(scope="module")
def module(emulated: Emulation) -> Any:
    return cpp_extension.load_inline("runtime_calls", declared(CUDA, NAMES), CUDA, functions=NAMES)


def test_calls_without_an_effect_here_are_taken(module: Any) -> None:
    assert module.profile() == 0


def test_memory_that_nothing_has_set_is_not_zero(module: Any) -> None:
    assert module.zeros_in_new_memory(torch.zeros(64, device="cuda")) == [64, 0, 0, 64]


def test_work_in_a_stream_is_done_and_those_of_torch_stay_valid(module: Any) -> None:
    tensor, streams = torch.zeros(1, device="cuda"), [torch.cuda.Stream() for _ in range(300)]
    assert module.in_a_stream(tensor) == 0
    assert tensor.item() == 1.0
    assert module.fill_in(tensor, streams[-1].cuda_stream) == 0
    assert tensor.item() == 3.0


def test_handles_and_memory_of_another_kind_get_cudas_codes(module: Any) -> None:
    """As on an H200; an occupancy of more shared memory than is allowed is 0."""
    assert module.misused() == [400, 400, 400, 400, 0, 400, 1, 1, 0, 0, 101, 1, 0, 0, 1]


def test_copies_are_work_in_their_stream(module: Any) -> None:
    tensor, streams = torch.zeros(2, device="cuda"), [torch.cuda.Stream() for _ in range(2)]
    stream_order.begin()
    for stream in (torch.cuda.current_stream(), *streams):
        assert module.copy_in(tensor, stream.cuda_stream) == 0
    early, *late = stream_order.unordered(0)
    assert {each.kernel for each in (early, *late)} == {"cudaMemcpy"}
    assert early.early and len(late) == 2


def test_cuda_waits_for_the_device_in_some_calls(module: Any) -> None:
    stream_order.begin()
    for way, waits in enumerate((1, 1, 1, 0, 0)):
        module.moves(way)
        module.moves(way)
        assert stream_order.waits() == 2 * waits, way


ONE_KERNEL = r"""
__global__ void one(float* out) { *out = 1.f; }
int launch(torch::Tensor t, bool looks) {
  one<<<1, 1>>>(t.data_ptr<float>());
  return looks ? cudaGetLastError() : 0;
}
"""


@pytest.mark.parametrize(
    ("flags", "arch_list"),
    [([], "9.0a"), pytest.param(["-arch=sm_120a"], "", marks=pytest.mark.corpus)],
)
def test_code_for_other_devices_is_no_image_for_this_one(
    emulated: Emulation, monkeypatch: pytest.MonkeyPatch, flags: list[str], arch_list: str
) -> None:
    monkeypatch.setenv("TORCH_CUDA_ARCH_LIST", arch_list)
    module = cpp_extension.load_inline(
        "one_kernel", "int launch(torch::Tensor, bool);", ONE_KERNEL, None, "launch", None, flags
    )
    tensor = torch.zeros(1, device="cuda")
    assert module.launch(tensor, True) == 209
    with pytest.raises(LaunchRefused, match="no kernel image is available") as caught:
        module.launch(tensor, False)
    made = "sm_120a" if "120" in str(flags) else "sm_90a"
    assert f"was built for {made}" in str(caught.value)
    assert "add -gencode=arch=compute_100a,code=sm_100a" in str(caught.value)


@pytest.mark.parametrize("function", ["texture", "channel"])
def test_a_function_that_is_not_emulated_is_refused_by_name(module: Any, function: str) -> None:
    with pytest.raises(UnsupportedCall, match=r"host code calls cudaCreate\w+, which is"):
        getattr(module, function)()


def test_a_cooperative_launch_must_fit_on_the_device(module: Any) -> None:
    out = torch.zeros(20, device="cuda")
    too_large = 720
    assert module.cooperative(out) == [0, 0, too_large, too_large]
    assert out.tolist() == [float(i) for i in range(20)]


# --- clusters, and launches that may begin early


def words(count: int) -> torch.Tensor:
    return torch.full((count,), -1, dtype=torch.int32, device="cuda")


def test_the_attribute_of_a_launch_makes_clusters(module: Any) -> None:
    out = words(8)
    assert module.in_clusters(out, 8, 4) == "cudaSuccess"
    assert out.tolist() == [400, 401, 402, 403] * 2


@pytest.mark.parametrize(("grid", "cluster"), [(6, 4), (16, 16), (3, 2)])
def test_clusters_that_cuda_refuses(module: Any, grid: int, cluster: int) -> None:
    out = words(16)
    assert module.in_clusters(out, grid, cluster) == "cudaErrorInvalidClusterSize"
    assert out.tolist() == [-1] * 16


def test_a_kernel_that_asks_for_clusters_itself(module: Any) -> None:
    out = words(4)
    assert module.in_pairs(out, 4, 0) == "cudaSuccess"
    assert out.tolist() == [0, 1, 0, 1]
    assert module.in_pairs(out, 3, 0) == "cudaErrorInvalidClusterSize"
    for cluster in (1, 4):
        assert module.in_pairs(out, 4, cluster) == "cudaErrorInvalidClusterSize"


def test_clusters_are_as_large_as_the_kernel_leaves_to_its_launch(module: Any) -> None:
    """As on an H200, 2026-11-30."""
    out, invalid = torch.zeros(8, dtype=torch.int32, device="cuda"), "cudaErrorInvalidClusterSize"
    asked = ((True, 0), (True, 1), (True, 2), (False, 0), (False, 4), (False, 8))
    codes = [module.in_clusters_of_launches(out, any_size, cluster) for any_size, cluster in asked]
    assert codes == [invalid, *["cudaSuccess"] * 4, invalid]


def test_clusters_of_sixteen_where_they_are_allowed(module: Any) -> None:
    out = words(32)
    assert module.in_large_clusters(out, 16) == "cudaSuccess"
    assert out.tolist() == list(range(16)) * 2
    assert module.in_large_clusters(out, 32) == "cudaErrorInvalidClusterSize"


@pytest.mark.parametrize(
    ("waits", "programmatic", "synchronises", "early"),
    [
        *((True, True, False, False), (False, True, False, True)),
        *((False, False, False, False), (False, True, True, False)),
    ],
)
def test_a_launch_that_may_begin_early_waits_for_what_it_reads(
    module: Any,
    emulated: Emulation,
    waits: bool,
    programmatic: bool,
    synchronises: bool,
    early: bool,
) -> None:
    x, y = words(32), words(32)
    if early:
        with pytest.raises(EarlyAccess, match="no griddepcontrol"):
            module.chain(x, y, waits, programmatic, synchronises)
        return
    module.chain(x, y, waits, programmatic, synchronises)
    assert emulated.launches[-1].findings == []
    assert y.tolist() == list(range(6, 38))


def test_what_torch_does_between_lets_nothing_begin_early(module: Any, emulated: Emulation) -> None:
    x, y = words(32), words(32)
    module.begin(x)
    x.add_(1)
    module.end(x, y)
    assert emulated.launches[-1].findings == []
    assert y.tolist() == list(range(7, 39))
    module.begin(x)
    torch.empty(8, device="cuda")
    with pytest.raises(EarlyAccess):
        module.end(x, y)


# --- kernels as NVIDIA's headers write them: large groups, bulk reductions, intrinsics


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


OF_SM_120 = r"""
__global__ void scaled(float* d, unsigned x) {
  float e = 0;
  asm volatile("mma.sync.aligned.%FORM% {%0,%0,%0,%0},{%1,%1,%1,%1},{%1,%1},{%0,%0,%0,%0}%SCALES%;"
               : "+f"(e) : "r"(x));
  d[threadIdx.x] = e;
}
"""


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
    text = OF_SM_120.replace("%FORM%", form).replace("%SCALES%", scales)
    with pytest.raises(CompileError, match=r"not supported on \.target 'sm_100'") as refused:
        cpp_extension.load_inline("scaled", "", text, functions=[])
    assert "sm_100a" not in str(refused.value.hint), "it has neither"
