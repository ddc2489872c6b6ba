"""CUDA C++ extensions on the stand-in device: launches, memory, errors as CUDA reports them."""

from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import declared, users_line
from torch.utils import cpp_extension

from nvfp4.capture.cuda.compilers import CompileError
from nvfp4.emulation import Emulation
from nvfp4.emulator.errors import OutOfBounds
from nvfp4.records.launch_errors import LaunchRefused, UnsupportedCall

CUDA = r"""
#include <cuda_runtime.h>
#include <string>

__constant__ float table[4] = {1.f, 2.f, 3.f, 4.f};
__device__ int counter = 7;
struct Pair { int first; double second; };

extern "C" __global__ void fill(float* out, int n, float value) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) out[i] = value;
}
__global__ void over(float* out, int n) {
  out[n + threadIdx.x] = 1.f;  // past the end
}
template <int N> __global__ void __launch_bounds__(N) bounded(float* out) { out[threadIdx.x] = N; }
__global__ void look_up(float* out, Pair pair) {
  out[threadIdx.x] = table[threadIdx.x] * pair.second + pair.first + counter;
}
__global__ void count() { atomicAdd(&counter, 1); }
__global__ void reverse(float* data) {
  extern __shared__ float shared[];
  shared[threadIdx.x] = data[threadIdx.x];
  __syncthreads();
  data[threadIdx.x] = shared[blockDim.x - 1 - threadIdx.x];
}
template <int BYTES> __global__ void turn(float* data) {
  __shared__ float shared[BYTES / sizeof(float)];
  shared[BYTES / sizeof(float) - 1 - threadIdx.x] = data[threadIdx.x];
  __syncthreads();
  data[threadIdx.x] = shared[BYTES / sizeof(float) - blockDim.x + threadIdx.x];
}

static float* ptr(const torch::Tensor& t) { return t.data_ptr<float>(); }
static std::string last() { return cudaGetErrorName(cudaGetLastError()); }

void fill_with(torch::Tensor t, double value) {
  fill<<<(t.numel() + 31) / 32, 32>>>(ptr(t), t.numel(), value);
}
void write_past(torch::Tensor t) { over<<<1, 4>>>(ptr(t), t.numel()); }
std::string launch_shape(torch::Tensor t, int grid, int block, int shared) {
  fill<<<grid, block, shared>>>(ptr(t), t.numel(), 1.f);
  return last();
}
void unchecked(torch::Tensor t) { fill<<<1, 2048>>>(ptr(t), t.numel(), 1.f); }
std::string checked_text(torch::Tensor t) {
  fill<<<1, 2048>>>(ptr(t), t.numel(), 1.f);
  return cudaGetErrorString(cudaGetLastError());
}
std::string too_many(torch::Tensor t) { bounded<64><<<1, 128>>>(ptr(t)); return last(); }
void use_symbols(torch::Tensor t) {
  const float values[2] = {10.f, 20.f};
  cudaMemcpyToSymbol(table, values, sizeof values, 2 * sizeof(float));
  look_up<<<1, 4>>>(ptr(t), Pair{1, 2.0});
}
int read_counter() {
  count<<<2, 32>>>();
  int value = 0;
  void *there = nullptr;
  cudaGetSymbolAddress(&there, counter);
  cudaMemcpy(&value, there, sizeof value, cudaMemcpyDeviceToHost);
  return value;
}
std::string large_shared(torch::Tensor t, bool ask) {
  const auto limit = cudaFuncAttributeMaxDynamicSharedMemorySize;
  if (ask) cudaFuncSetAttribute(reverse, limit, 100 * 1024);
  reverse<<<1, 32, 100 * 1024>>>(ptr(t));
  return last();
}
std::string set_shared(int bytes) {
  cudaFuncSetAttribute(reverse, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
  return last();
}
std::string static_shared(torch::Tensor t, bool small, int dynamic) {
  if (small) turn<60 * 1024><<<1, 32, dynamic>>>(ptr(t));
  else turn<160 * 1024><<<1, 32, dynamic>>>(ptr(t));
  return last();
}
std::vector<int64_t> static_shared_numbers() {
  cudaFuncAttributes of; cudaFuncGetAttributes(&of, turn<60 * 1024>);
  int blocks = 0; cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, turn<60 * 1024>, 32, 0);
  return {int64_t(of.sharedSizeBytes), of.maxDynamicSharedSizeBytes, blocks};
}
void through_memory(torch::Tensor t) {
  float* space = nullptr;
  const size_t size = t.numel() * sizeof(float);
  cudaMalloc(&space, size);
  cudaMemsetAsync(space, 0, size, 0);
  fill<<<1, 32>>>(space, 2, 5.f);
  cudaMemcpy(ptr(t), space, size, cudaMemcpyDeviceToDevice);
  cudaFree(space);
}
std::string memset_past(torch::Tensor t) {
  cudaMemset(ptr(t), 0, t.numel() * sizeof(float) + 1);
  return last();
}
void not_looked_at(torch::Tensor t, bool cleared) {
  cudaFuncSetAttribute((const void *)fill, cudaFuncAttributeMaxDynamicSharedMemorySize, 240000);
  cudaPeekAtLastError();
  if (cleared) cudaGetLastError();
  fill<<<1, 32>>>(ptr(t), t.numel(), 7.f);
}
std::vector<int64_t> numbers() {
  cudaDeviceProp p; cudaGetDeviceProperties(&p, 0);
  int blocks = 0, attribute = 0, device = -1;
  cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, fill, 256, 0);
  cudaDeviceGetAttribute(&attribute, cudaDevAttrMultiProcessorCount, 0);
  cudaGetDevice(&device);
  const int64_t most = p.sharedMemPerBlockOptin;
  return {p.multiProcessorCount, p.major, p.warpSize, most, blocks, attribute, device};
}
std::string time_it() {
  cudaEvent_t start, stop; cudaEventCreate(&start); cudaEventCreate(&stop);
  cudaEventRecord(start); cudaEventRecord(stop); cudaEventSynchronize(stop);
  float ms = -1.f; cudaError_t error = cudaEventElapsedTime(&ms, start, stop);
  cudaGetLastError();
  return std::string(cudaGetErrorName(error)) + (ms == ms ? " and a number" : "");
}
extern "C" int cublasCreate_v2(void**);
int use_cublas() { void* handle = nullptr; return cublasCreate_v2(&handle); }
"""

WRONG = r"""
__global__ void k(float* p) {
  p[0] = 1.f }
"""

SOURCE = Path(__file__).read_text().splitlines()

NAMES = [
    *("fill_with", "write_past", "launch_shape"),
    *("unchecked", "checked_text", "too_many", "use_symbols"),
    *("read_counter", "large_shared", "set_shared", "through_memory"),
    *("static_shared", "static_shared_numbers"),
    *("memset_past", "not_looked_at", "numbers", "time_it", "use_cublas"),
]

LINE_OF_THE_FAULT = 1 + next(i for i, line in enumerate(SOURCE) if "// past the end" in line)


@pytest.fixture(scope="module")
def module(emulated: Emulation) -> Any:
    own = {"extra_cuda_cflags": ["-gencode=arch=compute_100a,code=sm_100a"]}
    return cpp_extension.load_inline("probe", declared(CUDA, NAMES), CUDA, functions=NAMES, **own)


def test_a_launch_runs_its_kernel(module: Any, tensor: torch.Tensor, emulated: Emulation) -> None:
    module.fill_with(tensor, 2.5)
    assert tensor.tolist() == [2.5] * 32
    assert emulated.launches[-1].kernel == "fill"


def test_a_fault_names_the_line_of_the_python_file(module: Any, tensor: torch.Tensor) -> None:
    with pytest.raises(OutOfBounds) as caught:
        module.write_past(tensor)
    assert users_line(caught.value) == (Path(__file__).name, LINE_OF_THE_FAULT)
    module.fill_with(tensor, 1.0)  # the next call finds a working device
    assert tensor.tolist() == [1.0] * 32


@pytest.mark.parametrize(
    ("grid", "block", "shared", "error"),
    [
        (1, 32, 0, "cudaSuccess"),
        (1, 1024, 48 * 1024, "cudaSuccess"),
        (1, 1025, 0, "cudaErrorInvalidValue"),
        (1, 0, 0, "cudaErrorInvalidValue"),
        (0, 32, 0, "cudaErrorInvalidValue"),
        (1, 32, 48 * 1024 + 1, "cudaErrorInvalidValue"),
    ],
)
def test_an_impossible_launch_gets_cudas_code(
    module: Any, tensor: torch.Tensor, grid: int, block: int, shared: int, error: str
) -> None:
    assert module.launch_shape(tensor, grid, block, shared) == error
    assert module.launch_shape(tensor, 1, 32, 0) == "cudaSuccess"


def test_a_refused_launch_that_nobody_checks_is_an_error(module: Any, tensor: torch.Tensor) -> None:
    with pytest.raises(LaunchRefused, match=r"fill.*2048 in all.*1024"):
        module.unchecked(tensor)
    assert "2048" in module.checked_text(tensor)


def test_a_call_that_fails_is_an_error_unless_cudas_last_error_is_cleared(
    module: Any, tensor: torch.Tensor
) -> None:
    """torch's next kernel finds it, as on an H200."""
    with pytest.raises(LaunchRefused, match=r"torch raises at its next kernel: .*240000 bytes"):
        module.not_looked_at(tensor, False)
    module.not_looked_at(tensor.zero_(), True)
    assert tensor.tolist() == [7.0] * 32


def test_more_threads_than_the_launch_bounds_allow(module: Any, tensor: torch.Tensor) -> None:
    assert module.too_many(tensor) == "cudaErrorInvalidValue"


def test_variables_keep_what_was_copied_to_them(module: Any, tensor: torch.Tensor) -> None:
    module.use_symbols(tensor)
    assert tensor[:4].tolist() == [2 + 1 + 7, 4 + 1 + 7, 20 + 1 + 7, 40 + 1 + 7]
    assert module.read_counter() == 7 + 64
    assert module.read_counter() == 7 + 128


def test_large_shared_memory_must_be_asked_for(module: Any, tensor: torch.Tensor) -> None:
    tensor.copy_(torch.arange(32.0))
    assert module.large_shared(tensor, False) == "cudaErrorInvalidValue"
    assert module.large_shared(tensor, True) == "cudaSuccess"
    assert tensor.tolist() == [float(31 - i) for i in range(32)]
    assert module.set_shared(300 * 1024) == "cudaErrorInvalidValue"


def test_static_shared_memory_may_exceed_48_kib(module: Any, tensor: torch.Tensor) -> None:
    tensor.copy_(torch.arange(32.0))
    assert module.static_shared(tensor, True, 0) == "cudaSuccess"
    assert tensor.tolist() == [float(31 - i) for i in range(32)]
    assert module.static_shared(tensor, False, 64 * 1024) == "cudaSuccess"
    assert tensor.tolist() == [float(i) for i in range(32)]
    assert module.static_shared(tensor, False, 68 * 1024) == "cudaErrorInvalidValue"
    assert module.static_shared_numbers() == [60 * 1024, 0, 3]


def test_memory_of_the_runtime_is_device_memory(module: Any, tensor: torch.Tensor) -> None:
    module.through_memory(tensor)
    assert tensor.tolist() == [5.0, 5.0] + [0.0] * 30
    assert module.memset_past(tensor) == "cudaErrorInvalidValue"


def test_the_device_is_a_b200(module: Any) -> None:
    assert module.numbers() == [148, 10, 32, 232448, 8, 148, 0]


def test_no_time_can_be_measured(module: Any) -> None:
    assert module.time_it() == "cudaErrorNotSupported"


def test_a_function_of_another_library_is_named(module: Any) -> None:
    with pytest.raises(UnsupportedCall, match="cublasCreate_v2"):
        module.use_cublas()


def test_a_compilers_error_shows_the_line_of_the_python_file(emulated: Emulation) -> None:
    with pytest.raises(CompileError) as caught:
        cpp_extension.load_inline("wrong", "", WRONG, functions=[])
    line = 1 + SOURCE.index("  p[0] = 1.f }")
    assert f"test_cuda_extension.py({line}): error: expected a" in str(caught.value)
