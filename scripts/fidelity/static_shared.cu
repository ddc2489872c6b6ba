// What CUDA says of static and dynamic shared memory together: nvcc -arch=sm_90a static_shared.cu
// Prints what each launch said and which dynamic size is allowed, before and after asking for more;
// capture/cuda/kernel.py says the same. -DNO_MORE_THAN_48_KB for an architecture without "a".
#include <cstdio>

template <int N>
__global__ void fixed(float *out) {
  __shared__ float s[N / 4];
  extern __shared__ float dynamic[];
  s[threadIdx.x] = out[threadIdx.x];
  __syncthreads();
  if (out[0] > 1.f) dynamic[threadIdx.x] = 1.f;
  out[threadIdx.x] = s[N / 4 - 1 - threadIdx.x] * 0.f;
}

static const char *last() { return cudaGetErrorName(cudaGetLastError()) + 4; }

template <int N>
void tries(float *out) {
  cudaFuncAttributes a;
  cudaFuncGetAttributes(&a, fixed<N>);
  printf("%d: static %zu, dynamic allowed %d, %s\n ", N, a.sharedSizeBytes,
         a.maxDynamicSharedSizeBytes, last());
  for (int d : {0, 8192, 8196, 48 * 1024, 48 * 1024 + 4, 227 * 1024 - N, 227 * 1024 - N + 1}) {
    if (d < 0) continue;
    fixed<N><<<1, 32, d>>>(out);
    printf(" %d: %s", d, last());
  }
  for (int d : {-1, 0, 227 * 1024 - N, 227 * 1024 - N + 1, 228 * 1024 - N}) {
    cudaFuncSetAttribute(fixed<N>, cudaFuncAttributeMaxDynamicSharedMemorySize, d);
    printf("\n  set %d: %s", d, last());
    cudaFuncGetAttributes(&a, fixed<N>);
    int now = a.maxDynamicSharedSizeBytes, blocks = -1;
    printf(", now %d;", now);
    for (int l : {0, now, now + 1}) {
      fixed<N><<<1, 32, l>>>(out);
      printf(" %d: %s", l, last());
    }
    cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, fixed<N>, 32, 0);
    printf("; %d blocks", blocks);
  }
  cudaDeviceSynchronize(), printf("\n  at the end %s\n", last());
}

int main() {
  float *out;
  cudaMalloc(&out, 1 << 20), cudaMemset(out, 0, 1 << 20);
  tries<1024>(out), tries<40 * 1024>(out), tries<48 * 1024>(out);
#ifndef NO_MORE_THAN_48_KB
  tries<60 * 1024>(out), tries<160 * 1024>(out), tries<227 * 1024>(out);
#endif
}
