// Kernels of one warpgroup that multiply by wgmma: c = a * b^T, a [64, k], b [16, k] of half, c
// [64, 16] of float, k = 64. Before each stands `right`, or `wrong: CODE` of what is to be found at
// a line that ends in `<- here`.

#include <cuda_fp16.h>

#include <cstdint>

constexpr int kM = 64, kN = 16, kK = 64, kStep = 16;

__device__ uint32_t address(const void* p) { return __cvta_generic_to_shared(p); }

// Eight rows of 16 bytes stand together; then the next 16 bytes of K, then the next eight rows.
__device__ uint64_t descriptor(const void* p) {
  return uint64_t(address(p) >> 4 & 0x3fff) | uint64_t(128 >> 4) << 16 | uint64_t(256 >> 4) << 32;
}

// 16 columns of K of so many rows, in the order that the descriptor says.
__device__ void load(half* target, const half* source, int rows, int k) {
  for (int i = threadIdx.x; i < rows * 2; i += blockDim.x) {
    const int row = i / 2, part = i % 2;
    reinterpret_cast<uint4*>(target)[row / 8 * 16 + part * 8 + row % 8] =
        *reinterpret_cast<const uint4*>(source + row * kK + k + 8 * part);
  }
}

__device__ void proxy_fence() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }
__device__ void fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ void commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }

template <int N>
__device__ void wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(N) : "memory");
}

__device__ void multiply(float (&d)[8], const half* a, const half* b) {
  asm volatile(
      "{\n.reg .pred keep;\nsetp.ne.u32 keep, %10, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n16k16.f32.f16.f16 {%0, %1, %2, %3, %4, %5, %6, %7}, %8, "
      "%9, keep, 1, 1, 0, 0;\n}"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]),
        "+f"(d[7])
      : "l"(descriptor(a)), "l"(descriptor(b)), "r"(1));
}

// What uses these stays behind the wait before.
__device__ void keep_behind(float (&d)[8]) {
  for (int i = 0; i < 8; ++i) asm volatile("" : "+f"(d[i])::"memory");
}

__device__ void store(float* c, const float (&d)[8]) {
  const int row = threadIdx.x / 32 * 16 + threadIdx.x % 32 / 4, column = 2 * (threadIdx.x % 4);
  for (int i = 0; i < 8; ++i)
    c[(row + i / 2 % 2 * 8) * kN + column + i / 4 * 8 + i % 2] = d[i];
}

// right
extern "C" __global__ void one_at_a_time(const half* a, const half* b, float* c) {
  __shared__ alignas(128) half sa[kM * kStep], sb[kN * kStep];
  float d[8] = {};
  for (int k = 0; k < kK; k += kStep) {
    load(sa, a, kM, k);
    load(sb, b, kN, k);
    proxy_fence();
    __syncthreads();
    fence();
    multiply(d, sa, sb);
    commit();
    wait<0>();
    __syncthreads();
  }
  store(c, d);
}

// right
extern "C" __global__ void two_stages(const half* a, const half* b, float* c) {
  __shared__ alignas(128) half sa[2][kM * kStep], sb[2][kN * kStep];
  float d[8] = {};
#pragma unroll 1
  for (int k = 0; k < kK; k += kStep) {
    const int stage = k / kStep % 2;
    load(sa[stage], a, kM, k);
    load(sb[stage], b, kN, k);
    proxy_fence();
    __syncthreads();
    fence();
    multiply(d, sa[stage], sb[stage]);
    commit();
    wait<1>();
    __syncthreads();  // the product before this one is complete: its stage is free
  }
  wait<0>();
  keep_behind(d);
  store(c, d);
}

// right
extern "C" __global__ void sums_of_two(const half* a, const half* b, float* c) {
  __shared__ alignas(128) half sa[kK / kStep][kM * kStep], sb[kK / kStep][kN * kStep];
  float d[8] = {}, e[8] = {};
  for (int k = 0; k < kK; k += kStep) {
    load(sa[k / kStep], a, kM, k);
    load(sb[k / kStep], b, kN, k);
  }
  proxy_fence();
  __syncthreads();
  fence();
  for (int i = 0; i < 4; i += 2) multiply(d, sa[i], sb[i]);
  commit();
  for (int i = 1; i < 4; i += 2) multiply(e, sa[i], sb[i]);
  commit();
  wait<1>();
  keep_behind(d);
  for (int i = 0; i < 8; ++i) d[i] *= 2;
  wait<0>();
  keep_behind(e);
  for (int i = 0; i < 8; ++i) d[i] = d[i] / 2 + e[i];
  store(c, d);
}

// wrong: tensor_race
extern "C" __global__ void sums_are_read_too_early(const half* a, const half* b, float* c) {
  __shared__ alignas(128) half sa[kK / kStep][kM * kStep], sb[kK / kStep][kN * kStep];
  float d[8] = {}, e[8] = {};
  for (int k = 0; k < kK; k += kStep) {
    load(sa[k / kStep], a, kM, k);
    load(sb[k / kStep], b, kN, k);
  }
  proxy_fence();
  __syncthreads();
  fence();
  for (int i = 0; i < 4; i += 2) multiply(d, sa[i], sb[i]);
  commit();
  for (int i = 1; i < 4; i += 2) multiply(e, sa[i], sb[i]);
  commit();
  wait<1>();
  for (int i = 0; i < 8; ++i) d[i] += e[i];  // <- here
  wait<0>();
  keep_behind(d);
  store(c, d);
}

// wrong: tensor_race
extern "C" __global__ void no_wait_at_the_end(const half* a, const half* b, float* c) {
  __shared__ alignas(128) half sa[kK / kStep][kM * kStep], sb[kK / kStep][kN * kStep];
  float d[8] = {};
  for (int k = 0; k < kK; k += kStep) {
    load(sa[k / kStep], a, kM, k);
    load(sb[k / kStep], b, kN, k);
  }
  proxy_fence();
  __syncthreads();
  fence();
  for (int i = 0; i < 4; ++i) multiply(d, sa[i], sb[i]);
  commit();
  const int row = threadIdx.x / 32 * 16 + threadIdx.x % 32 / 4, column = 2 * (threadIdx.x % 4);
  for (int i = 0; i < 8; ++i)
    c[(row + i / 2 % 2 * 8) * kN + column + i / 4 * 8 + i % 2] = d[i];  // <- here
}

// wrong: tensor_race
extern "C" __global__ void a_stage_is_filled_too_early(const half* a, const half* b, float* c) {
  __shared__ alignas(128) half sa[kM * kStep], sb[kN * kStep];
  float d[8] = {};
#pragma unroll 1
  for (int k = 0; k < kK; k += kStep) {
    if (threadIdx.x < 16) reinterpret_cast<uint4*>(sb)[threadIdx.x] = uint4{};  // <- here
    __syncthreads();
    load(sa, a, kM, k);
    load(sb, b, kN, k);
    proxy_fence();
    __syncthreads();
    fence();
    multiply(d, sa, sb);
    commit();
  }
  wait<0>();
  keep_behind(d);
  store(c, d);
}

// wrong: tensor_race
extern "C" __global__ void another_warp_overwrites(const half* a, const half* b, float* c) {
  __shared__ alignas(128) half sa[kM * kStep], sb[kN * kStep];
  float d[8] = {};
  load(sa, a, kM, 0);
  load(sb, b, kN, 0);
  proxy_fence();
  __syncthreads();
  fence();
  multiply(d, sa, sb);
  commit();
  wait<0>();
  if (threadIdx.x < 16) reinterpret_cast<uint4*>(sb)[threadIdx.x] = uint4{};  // <- here
  store(c, d);
}

// wrong: proxy_fence
extern "C" __global__ void no_proxy_fence(const half* a, const half* b, float* c) {
  __shared__ alignas(128) half sa[kM * kStep], sb[kN * kStep];
  float d[8] = {};
  load(sa, a, kM, 0);
  load(sb, b, kN, 0);
  __syncthreads();
  fence();
  asm volatile(
      "{\n.reg .pred keep;\nsetp.ne.u32 keep, %10, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n16k16.f32.f16.f16 {%0, %1, %2, %3, %4, %5, %6, %7}, %8, "
      "%9, keep, 1, 1, 0, 0;\n}"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]),
        "+f"(d[7])
      : "l"(descriptor(sa)), "l"(descriptor(sb)), "r"(1));  // <- here
  commit();
  wait<0>();
  keep_behind(d);
  store(c, d);
}

// wrong: tensor_fence
extern "C" __global__ void no_fence(const half* a, const half* b, float* c) {
  __shared__ alignas(128) half sa[kM * kStep], sb[kN * kStep];
  float d[8] = {};
  load(sa, a, kM, 0);
  load(sb, b, kN, 0);
  proxy_fence();
  __syncthreads();
  asm volatile(
      "{\n.reg .pred keep;\nsetp.ne.u32 keep, %10, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n16k16.f32.f16.f16 {%0, %1, %2, %3, %4, %5, %6, %7}, %8, "
      "%9, keep, 1, 1, 0, 0;\n}"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]),
        "+f"(d[7])
      : "l"(descriptor(sa)), "l"(descriptor(sb)), "r"(1));  // <- here
  commit();
  wait<0>();
  keep_behind(d);
  store(c, d);
}
