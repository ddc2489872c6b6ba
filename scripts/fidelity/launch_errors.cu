// The error codes of launches that CUDA refuses: nvcc -o launch_errors launch_errors.cu
// Prints what was tried and what cudaGetLastError said; capture/cuda/runtime.py says the same.
#include <cstdio>

__global__ void plain(float *out) { out[threadIdx.x] = 1.f; }
template <int N>
__global__ void __launch_bounds__(N) bounded(float *out) {
  out[threadIdx.x] = N;
}
// Each thread keeps 120 values alive at once.
__global__ void __launch_bounds__(128) many_registers(float *out) {
  float kept[120];
#pragma unroll
  for (int i = 0; i < 120; ++i) kept[i] = out[threadIdx.x + i * 128];
  __syncthreads();
#pragma unroll
  for (int i = 0; i < 120; ++i) out[threadIdx.x + i * 128] = kept[119 - i] * kept[i];
}
__global__ void shared_memory(float *out) {
  extern __shared__ float shared[];
  shared[threadIdx.x] = 1.f;
  out[threadIdx.x] = shared[threadIdx.x];
}

static void said(const char *what) {
  printf("%s: %s\n", what, cudaGetErrorName(cudaGetLastError()));
}

int main() {
  float *out;
  cudaMalloc(&out, 1 << 20);
  plain<<<1, 1024>>>(out), said("1024 threads");
  plain<<<1, 1025>>>(out), said("1025 threads");
  plain<<<1, dim3(1, 1, 65)>>>(out), said("65 threads in z");
  plain<<<1, 0>>>(out), said("no threads");
  plain<<<0, 32>>>(out), said("no blocks");
  plain<<<dim3(1, 65536), 32>>>(out), said("65536 blocks in y");
  bounded<64><<<1, 64>>>(out), said("64 threads, launch bounds 64");
  bounded<64><<<1, 65>>>(out), said("65 threads, launch bounds 64");
  bounded<64><<<1, 128>>>(out), said("128 threads, launch bounds 64");
  many_registers<<<1, 1024>>>(out), said("1024 threads, launch bounds 128, many registers");
  shared_memory<<<1, 32, 48 << 10>>>(out), said("48 KiB of shared memory");
  shared_memory<<<1, 32, (48 << 10) + 1>>>(out), said("48 KiB and a byte");
  cudaFuncSetAttribute(shared_memory, cudaFuncAttributeMaxDynamicSharedMemorySize, 227 << 10);
  said("asking for 227 KiB");
  cudaFuncSetAttribute(shared_memory, cudaFuncAttributeMaxDynamicSharedMemorySize, 228 << 10);
  said("asking for 228 KiB");
  cudaMemset(out, 0, (1 << 20) + 1), said("a fill one byte too long");
  cudaMemcpyToSymbol(out, out, 4), said("a copy to what is no symbol");
  cudaDeviceSynchronize(), said("at the end");
}
