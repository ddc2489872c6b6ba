# expect: pass
"""C++20: concepts, a format policy, if constexpr, constexpr tables, bit_cast, an enum class."""

from torch.utils.cpp_extension import load_inline

CXX = """
void launch(uintptr_t a, uintptr_t b, uintptr_t s, uintptr_t t, uintptr_t c, int m, int k, int l);
"""

CUDA = r"""
#include <array>
#include <bit>
#include <concepts>
#include <cstdint>
#include <cuda_fp16.h>

enum class Format : std::uint8_t { e2m1, e4m3 };

template <Format F> struct Traits;
template <> struct Traits<Format::e2m1> { static constexpr int bits = 4, mantissa = 1, bias = 1; };
template <> struct Traits<Format::e4m3> { static constexpr int bits = 8, mantissa = 3, bias = 7; };

// Any small float as a float: its fields go to their places, a power of two mends the bias.
template <Format F>
constexpr __device__ float decode(std::uint32_t code) {
  using T = Traits<F>;
  static_assert(T::bits <= 8 && T::bias < 127);
  constexpr std::uint32_t sign = 1u << (T::bits - 1);
  const std::uint32_t magnitude = code & (sign - 1);
  constexpr std::uint32_t shift = 23 - T::mantissa;
  // 2^(127 - bias) in two steps: subnormals of the format are subnormals here
  constexpr float rest = std::bit_cast<float>(std::uint32_t(127 + 127 - T::bias - 60) << 23);
  const float value = std::bit_cast<float>(magnitude << shift) * 0x1p60f * rest;
  return code & sign ? -value : value;
}

template <typename T>
concept Accumulator = std::floating_point<T> && requires(T x, float y) {
  { x += y } -> std::same_as<T&>;
};

template <typename F>
concept Reducer = std::invocable<F, float, int>;

template <int Lanes, Reducer F>
__device__ float reduce(float value, F exchange) {
  if constexpr (Lanes > 1) {
    value += exchange(value, Lanes / 2);
    return reduce<Lanes / 2>(value, exchange);
  } else {
    return value;
  }
}

struct Operand {
  const std::uint8_t *values, *scales;
  std::int64_t rows;
};

template <Accumulator T, int Lanes>
__global__ void kernel(const Operand a, const Operand b, std::uint16_t* c, const int blocks) {
  __shared__ float table[16];
  if (threadIdx.x < 16 && threadIdx.y == 0) table[threadIdx.x] = decode<Format::e2m1>(threadIdx.x);
  __syncthreads();
  const auto row = std::int64_t{blockIdx.y} * a.rows + blockIdx.x * blockDim.y + threadIdx.y;
  const auto dot = [&](std::int64_t x, std::int64_t y) {
    float sum = 0.f;
    for (int i = 0; i < 8; ++i) {
      const auto u = a.values[x * 8 + i], v = b.values[y * 8 + i];
      sum += table[u & 15] * table[v & 15];
      sum += table[u >> 4] * table[v >> 4];
    }
    return sum;
  };
  T acc{};
  for (int j = threadIdx.x; j < blocks; j += Lanes) {
    const auto x = row * blocks + j, y = blockIdx.y * b.rows * blocks + j;
    acc += dot(x, y) * decode<Format::e4m3>(a.scales[x]) * decode<Format::e4m3>(b.scales[y]);
  }
  const float total = reduce<Lanes>(acc, [](float v, int offset) {
    return __shfl_xor_sync(0xffffffffu, v, offset, Lanes);
  });
  if (threadIdx.x == 0) c[row] = std::bit_cast<std::uint16_t>(__float2half_rn(total));
}

void launch(uintptr_t a, uintptr_t b, uintptr_t s, uintptr_t t, uintptr_t c, int m, int k, int l) {
  const Operand x{.values = (const std::uint8_t*)a, .scales = (const std::uint8_t*)s, .rows = m};
  const Operand y{.values = (const std::uint8_t*)b, .scales = (const std::uint8_t*)t, .rows = 128};
  kernel<float, 16><<<dim3(m / 8, l), dim3(16, 8)>>>(x, y, (std::uint16_t*)c, k / 16);
}
"""

gemv = load_inline(
    name="concepts",
    cpp_sources=CXX,
    cuda_sources=CUDA,
    functions=["launch"],
    extra_cflags=["-std=c++20"],
    extra_cuda_cflags=["-std=c++20", "-gencode=arch=compute_100a,code=sm_100a"],
)


def custom_kernel(data):
    a, b, sfa, sfb, _, _, c = data
    m, _, l = c.shape
    pointers = (t.data_ptr() for t in (a, b, sfa, sfb, c))
    gemv.launch(*pointers, m, a.shape[1] * 2, l)
    return c
