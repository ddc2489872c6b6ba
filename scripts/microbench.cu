// What scripts/microbench.py times. Each kernel measures one number of a GPU; no product of matrices
// and vectors is in here.

#include <cstdint>

extern "C" __global__ void empty() {}

extern "C" __global__ void spin(long long cycles) {
  const long long begin = clock64();
  while (clock64() - begin < cycles) {
  }
}

__device__ __forceinline__ uint4 load16(const uint4* at) {
  uint4 v;
  asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0,%1,%2,%3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "l"(at));
  return v;
}

// All of a buffer, every thread with COUNT loads under way; blocks take turns along it.
template <int COUNT>
__device__ void read_all(const uint4* from, long long quads, uint32_t* to) {
  const long long step = (long long)gridDim.x * blockDim.x * COUNT;
  uint32_t sum = 0;
  for (long long base = (long long)blockIdx.x * blockDim.x * COUNT + threadIdx.x; base < quads;
       base += step) {
    uint4 v[COUNT];
#pragma unroll
    for (int i = 0; i < COUNT; ++i) v[i] = load16(from + min(base + (long long)i * blockDim.x, quads - 1));
#pragma unroll
    for (int i = 0; i < COUNT; ++i) sum += v[i].x ^ v[i].y ^ v[i].z ^ v[i].w;
  }
  if (sum == 0x12345678u) to[threadIdx.x] = sum;
}

#define READ(COUNT)                                                                          \
  extern "C" __global__ void read_##COUNT(const uint4* from, long long quads, uint32_t* to) { \
    read_all<COUNT>(from, quads, to);                                                         \
  }
READ(1)
READ(2)
READ(4)
READ(8)

// Cycles of a load whose address is the result of the one before.
extern "C" __global__ void chase(const uint32_t* from, long long* cycles, int steps) {
  uint32_t at = 0;
  const long long begin = clock64();
  for (int i = 0; i < steps; ++i) at = from[at];
  cycles[0] = (clock64() - begin) / steps;
  cycles[1] = at;
}

// Loads that L1 answers: `stride` bytes between lanes, WORDS words each. Cycles of a block.
template <int WORDS>
__device__ void from_l1(const uint32_t* from, int stride, int rounds, long long* cycles,
                        uint32_t* to) {
  const char* at = (const char*)from + (threadIdx.x & 31) * stride;
  uint32_t sum = 0;
  long long begin = 0;
  for (int r = -1; r < rounds; ++r) {
    if (r == 0) {
      __syncthreads();
      begin = clock64();
    }
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const char* here = at + ((i * 4) & (stride > 4 * WORDS ? stride - 4 * WORDS : 0));
      if (WORDS == 4) {
        uint4 v;
        asm volatile("ld.global.ca.v4.u32 {%0,%1,%2,%3}, [%4];"
                     : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                     : "l"((const char*)((uintptr_t)here & ~15ull)));
        sum += v.x ^ v.y ^ v.z ^ v.w;
      } else {
        uint32_t v;
        asm volatile("ld.global.ca.u32 %0, [%1];" : "=r"(v) : "l"(here));
        sum += v;
      }
    }
  }
  __syncthreads();
  if (threadIdx.x == 0) cycles[blockIdx.x] = clock64() - begin;
  if (sum == 0x12345678u) to[threadIdx.x] = sum;
}
extern "C" __global__ void l1_words(const uint32_t* from, int stride, int rounds,
                                    long long* cycles, uint32_t* to) {
  from_l1<1>(from, stride, rounds, cycles, to);
}
extern "C" __global__ void l1_quads(const uint32_t* from, int stride, int rounds,
                                    long long* cycles, uint32_t* to) {
  from_l1<4>(from, stride, rounds, cycles, to);
}

// Instructions: eight independent chains of each, 32 an iteration.
#define PIPE(NAME, DECLARE, ONE, KEEP)                                          \
  extern "C" __global__ void pipe_##NAME(int rounds, long long* cycles, int* to) { \
    DECLARE;                                                                    \
    __syncthreads();                                                            \
    const long long begin = clock64();                                          \
    for (int r = 0; r < rounds; ++r) {                                          \
      _Pragma("unroll") for (int i = 0; i < 32; ++i) {                          \
        const int j = i & 7;                                                    \
        ONE;                                                                    \
      }                                                                         \
    }                                                                           \
    const long long end = clock64();                                            \
    __syncthreads();                                                            \
    int kept = 0;                                                               \
    _Pragma("unroll") for (int j = 0; j < 8; ++j) kept ^= KEEP;                 \
    if (kept == 0x12345678) to[threadIdx.x] = kept;                             \
    if ((threadIdx.x & 31) == 0)                                                \
      cycles[blockIdx.x * 32 + (threadIdx.x >> 5)] = end - begin;               \
  }

#define FLOATS                                 \
  float x[8];                                  \
  _Pragma("unroll") for (int j = 0; j < 8; ++j) x[j] = threadIdx.x + j; \
  const float m = __int_as_float(rounds)
#define WORDS                                  \
  uint32_t x[8];                               \
  _Pragma("unroll") for (int j = 0; j < 8; ++j) x[j] = threadIdx.x + j; \
  const uint32_t m = rounds

PIPE(ffma, FLOATS, asm volatile("fma.rn.f32 %0, %0, %1, %1;" : "+f"(x[j]) : "f"(m)),
     __float_as_int(x[j]))
PIPE(hfma2, WORDS, asm volatile("fma.rn.f16x2 %0, %0, %1, %1;" : "+r"(x[j]) : "r"(m)), x[j])
PIPE(imad, WORDS, asm volatile("mad.lo.s32 %0, %0, %1, %1;" : "+r"(x[j]) : "r"(m)), x[j])
PIPE(lop3, WORDS, asm volatile("lop3.b32 %0, %0, %1, %2, 0x6a;" : "+r"(x[j]) : "r"(m), "r"(x[j ^ 1])), x[j])
PIPE(iadd, WORDS, asm volatile("add.s32 %0, %0, %1;" : "+r"(x[j]) : "r"(x[j ^ 1])), x[j])
PIPE(unpack, WORDS, asm volatile("{.reg .b16 l, h; mov.b32 {l, h}, %0; cvt.rn.f16x2.e4m3x2 %0, l;}" : "+r"(x[j])), x[j])
PIPE(i2f, WORDS, asm volatile("cvt.rn.f32.s32 %0, %0;" : "+r"(x[j])), x[j])
PIPE(f2f, WORDS, asm volatile("{.reg .b16 l, h; mov.b32 {l, h}, %0; cvt.f32.f16 %0, l;}" : "+r"(x[j])), x[j])
PIPE(mufu, FLOATS, asm volatile("ex2.approx.ftz.f32 %0, %0;" : "+f"(x[j])), __float_as_int(x[j]))
PIPE(shfl, WORDS, asm volatile("shfl.sync.bfly.b32 %0, %0, 1, 31, -1;" : "+r"(x[j])), x[j])

// Stores of a warp to 128 bytes of its own, which L1 writes through to L2.
extern "C" __global__ void stores(uint32_t* to, int rounds, long long* cycles) {
  uint32_t* at = to + blockIdx.x * blockDim.x + threadIdx.x;
  __syncthreads();
  const long long begin = clock64();
  for (int r = 0; r < rounds; ++r) asm volatile("st.global.u32 [%0], %1;" ::"l"(at), "r"(r));
  __syncthreads();
  if (threadIdx.x == 0) cycles[blockIdx.x] = clock64() - begin;
}

// Shared memory: words, 16 bytes a lane, and a two-way conflict.
extern "C" __global__ void shared_loads(int rounds, int lane_bytes, int wide, long long* cycles,
                                        int* to) {
  __shared__ __align__(16) char room[16384];
  const uint32_t at = (uint32_t)__cvta_generic_to_shared(room) + (threadIdx.x & 31) * lane_bytes;
  uint32_t sum = 0;
  __syncthreads();
  const long long begin = clock64();
  for (int r = 0; r < rounds; ++r) {
#pragma unroll
    for (int i = 0; i < 16; ++i) {
      if (wide) {
        uint32_t a, b, c, d;
        asm volatile("ld.shared.v4.u32 {%0,%1,%2,%3}, [%4];"
                     : "=r"(a), "=r"(b), "=r"(c), "=r"(d) : "r"(at));
        sum += a ^ b ^ c ^ d;
      } else {
        uint32_t a;
        asm volatile("ld.shared.u32 %0, [%1];" : "=r"(a) : "r"(at));
        sum += a;
      }
    }
  }
  const long long end = clock64();
  if (sum == 0x12345678u) to[threadIdx.x] = sum;
  if ((threadIdx.x & 31) == 0) cycles[blockIdx.x * 32 + (threadIdx.x >> 5)] = end - begin;
}

extern "C" __global__ void shared_chase(int steps, long long* cycles) {
  __shared__ uint32_t room[32];
  room[threadIdx.x & 31] = (uint32_t)__cvta_generic_to_shared(room);
  __syncthreads();
  uint32_t at = room[0];
  const long long begin = clock64();
  for (int i = 0; i < steps; ++i) asm volatile("ld.shared.u32 %0, [%0];" : "+r"(at));
  cycles[0] = (clock64() - begin) / steps;
  cycles[1] = at;
}

extern "C" __global__ void barriers(int rounds, long long* cycles) {
  __syncthreads();
  const long long begin = clock64();
  for (int r = 0; r < rounds; ++r) __syncthreads();
  if (threadIdx.x == 0) cycles[blockIdx.x] = (clock64() - begin) / rounds;
}

// A branch that is taken each time, around nothing that could be left out.
extern "C" __global__ void branches(int rounds, long long* cycles, int* to) {
  int x = threadIdx.x;
  const long long begin = clock64();
#pragma unroll 1
  for (int r = 0; r < rounds; ++r) asm volatile("add.s32 %0, %0, 1;" : "+r"(x));
  cycles[0] = (clock64() - begin) / rounds;
  if (x == -1) to[0] = x;
}

// Time that the device's two clocks say of the same cycles.
extern "C" __global__ void clocks(long long cycles, unsigned long long* to) {
  unsigned long long t0, t1;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(t0));
  const long long begin = clock64();
  while (clock64() - begin < cycles) {
  }
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(t1));
  to[0] = clock64() - begin;
  to[1] = t1 - t0;
}
