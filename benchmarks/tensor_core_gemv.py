"""The same product in CUDA C++ with block sums on the integer tensor cores of sm_80 to sm_90.

A warp takes eight rows and 1,024 elements of k at a time. Rows reach shared memory by cp.async, a
stage or two ahead, and leave it in the order of mma fragments: lane 4 g + t has the 16-byte chunks
8 t to 8 t + 7 of row g. Rows 0 to 7 of mma's a are the positive elements of the eight rows, rows 8
to 15 the negative ones, all doubled. A column of b is zero but for one block of one lane's chunk,
so that a lane finds the sums of its own two blocks in its accumulators.
"""

import ctypes
import functools
import hashlib
import itertools
import os
import pathlib
import subprocess
import tempfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import astuple, dataclass
from typing import Any

import torch

source = r"""
#include <cuda_fp16.h>
#include <cstdint>

constexpr int kRows = 8, kChunks = 32;  // of a warp, in 16-byte units

// Four doubled magnitudes; 0 where the sign bit is set, which __byte_perm would mask.
__device__ __forceinline__ uint32_t lookup(uint32_t table, uint32_t codes) {
  uint32_t magnitudes;
  asm("prmt.b32 %0, %1, %2, %3;"
      : "=r"(magnitudes) : "r"(table), "r"(0x0C080604), "r"(codes));
  return magnitudes;
}

__device__ __forceinline__ uint32_t upper(uint32_t word) {
  uint32_t half;  // not on the pipe of shifts, which prmt needs
  asm("{\n.reg .b64 wide;\n.reg .b32 low;\nmul.wide.u32 wide, %1, 65536;\n"
      "mov.b64 {low, %0}, wide;\n}" : "=r"(half) : "r"(word));
  return half;
}

__device__ __forceinline__ uint4 mma(const uint4& a, uint32_t b0, uint32_t b1, const uint4& c) {
  uint4 d;
  asm("mma.sync.aligned.m16n8k32.row.col.s32.u8.s8.s32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
      "{%10,%11,%12,%13};"
      : "=r"(d.x), "=r"(d.y), "=r"(d.z), "=r"(d.w)
      : "r"(a.x), "r"(a.y), "r"(a.z), "r"(a.w), "r"(b0), "r"(b1), "r"(c.x), "r"(c.y), "r"(c.z),
        "r"(c.w));
  return d;
}

__device__ __forceinline__ __half2 fp8x2(uint32_t codes) {
  uint32_t h;
  asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(h) : "h"(uint16_t(codes)));
  return reinterpret_cast<__half2&>(h);
}

// 16 scales of a lane's chunks, of which so many are left; zeros past the end.
template <bool whole>
__device__ __forceinline__ uint4 load_scales(const uint8_t* from, int left) {
  if constexpr (whole) {
    return __ldg(reinterpret_cast<const uint4*>(from));
  } else {
    uint32_t words[4];
#pragma unroll
    for (int i = 0; i < 4; ++i)  // chunks come in pairs, as k is a multiple of 64
      words[i] = 2 * i < left ? *reinterpret_cast<const uint32_t*>(from + 4 * i) : 0;
    return make_uint4(words[0], words[1], words[2], words[3]);
  }
}

__device__ __forceinline__ uint32_t word(const uint4& of, int i) {
  return i == 0 ? of.x : i == 1 ? of.y : i == 2 ? of.z : of.w;
}

// warps: along k, `steps` times. teams: of warps, with rows of their own. groups: of eight rows
// that a team does one after another. stages: of eight rows and 1,024 elements in flight. whole:
// whether neither rows nor k end within that.
template <int warps, int teams, int groups, int steps, int stages, bool whole>
__global__ void __launch_bounds__(32 * warps * teams)
gemv(const uint8_t* a, const uint8_t* b, const uint8_t* sfa, const uint8_t* sfb, __half* c, int m,
     int chunks) {
  extern __shared__ uint4 shared[];
  __shared__ float partial[teams][groups][warps][kRows];
  constexpr int count = groups * steps;
  const int lane = threadIdx.x, warp = threadIdx.y, team = threadIdx.z;
  const int g = lane >> 2, t = lane & 3;
  // Of each warp: b as signed bytes (two blocks a chunk), then rows; zeros for all.
  uint4* const vector = shared + (team * warps + warp) * kChunks * (2 * steps + stages * kRows);
  uint4* const rows = vector + 2 * steps * kChunks;
  uint4* const zeros = shared + teams * warps * kChunks * (2 * steps + stages * kRows);
  // Neither known to the compiler nor the same for all lanes as far as it knows: it would be copied
  // before every use.
  uint32_t table;
  asm("mov.u32 %0, %%laneid;" : "=r"(table));
  table = 0x03020100 + (table >> 5);
  const int row0 = (blockIdx.x * teams + team) * groups * kRows;
  const int64_t batch = blockIdx.y, first_row = batch * m + row0;
  const int first_chunk = warp * kChunks, row_bytes = chunks * 16, row_scales = chunks * 2;
  const uint8_t* const a0 = a + first_row * row_bytes + (first_chunk + lane) * 16;
  const uint8_t* const sfa0 = sfa + (first_row + g) * row_scales + (first_chunk + 8 * t) * 2;
  const uint8_t* const b0 = b + batch * 128 * row_bytes + (first_chunk + lane) * 16;
  const uint8_t* const sfb0 = sfb + batch * 128 * row_scales + (first_chunk + 8 * t) * 2;
  // Swizzled, so that neither cp.async nor the read of a fragment meets a bank twice.
  const int even = (lane & ~7) | ((lane ^ (2 * (lane >> 3))) & 7);
  const uint32_t place = uint32_t(__cvta_generic_to_shared(rows + even));
  const uint32_t odd_place = place ^ 16;

  // How far a row of this CTA lies behind the first one: the last one stands for those past it.
  const auto behind = [&](int row) { return whole ? row : min(row, m - 1 - row0); };
  const auto fetch = [&](int number) {
    if (number < count) {
      const int column = (number % steps) * warps * kChunks;
      const bool inside = whole || first_chunk + column + lane < chunks;
      const uint32_t stage = (number % stages) * kRows * kChunks * 16;
#pragma unroll
      for (int r = 0; r < kRows; ++r) {
        const int row = behind(number / steps * kRows + r);
        const uint8_t* from = a0 + int64_t(row) * row_bytes + (inside ? column * 16 : 0);
        const uint32_t to = (r & 1 ? odd_place : place) + stage + r * kChunks * 16;
        if (whole)
          asm volatile("cp.async.cg.shared.global [%0], [%1], 16;"
                       :: "r"(to), "l"(from) : "memory");
        else
          asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
                       :: "r"(to), "l"(inside ? from : a), "r"(inside ? 16 : 0) : "memory");
      }
    }
    asm volatile("cp.async.commit_group;" ::: "memory");
  };
  const auto scales_of = [&](int number) {
    const int column = (number % steps) * warps * kChunks;
    const int64_t row = behind(number / steps * kRows + g) - (whole ? g : behind(g));
    const int left = whole ? kChunks : chunks - first_chunk - column - 8 * t;
    const uint8_t* from = whole ? sfa0 : sfa0 + (behind(g) - g) * row_scales;
    return load_scales<whole>(from + row * row_scales + column * 2, left);
  };

  uint4 scales[stages];
#pragma unroll
  for (int number = 0; number < stages; ++number) {
    fetch(number);
    scales[number] = number < count ? scales_of(number) : make_uint4(0, 0, 0, 0);
  }

  if (warp == 0 && team == 0) zeros[lane] = make_uint4(0, 0, 0, 0);
  __half2 factors[steps][8];
#pragma unroll
  for (int step = 0; step < steps; ++step) {
    const int column = step * warps * kChunks;
    uint4 x = make_uint4(0, 0, 0, 0);
    if (whole || first_chunk + column + lane < chunks)
      x = __ldg(reinterpret_cast<const uint4*>(b0 + column * 16));
    uint32_t values[8];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const uint32_t codes = word(x, i), other = codes ^ 0x88888888;
      values[2 * i] = __vsub4(lookup(table, codes), lookup(table, other));
      values[2 * i + 1] = __vsub4(lookup(table, upper(codes)), lookup(table, upper(other)));
    }
    uint4* const two = vector + 2 * (step * kChunks + lane);
    two[0] = make_uint4(values[0], values[1], values[2], values[3]);
    two[1] = make_uint4(values[4], values[5], values[6], values[7]);
    const int left = whole ? kChunks : chunks - first_chunk - column - 8 * t;
    const uint4 codes = load_scales<whole>(sfb0 + column * 2, left);
#pragma unroll
    for (int q = 0; q < 8; ++q)
      factors[step][q] = __hmul2(fp8x2(q & 1 ? upper(word(codes, q / 2)) : word(codes, q / 2)),
                                 __float2half2_rn(0.25f));
  }
  __syncthreads();  // the zeros

  // 1.5 * 2**23: an integer added to its bits adds to its value.
  const uint4 magic = make_uint4(0x4B400000, 0x4B400000, 0x4B400000, 0x4B400000);
  const bool mine = g >> 1 == t;
  float total = 0.f;
#pragma unroll
  for (int number = 0; number < count; ++number) {
    const int step = number % steps;
    asm volatile("cp.async.wait_group %0;" :: "n"(stages - 1) : "memory");
    __syncwarp();
    const uint4* const stage = rows + (number % stages) * kRows * kChunks + g * kChunks;
    // The zeros lie in the banks beside those of the one lane that reads b.
    const uint4* const from = vector + 2 * step * kChunks + 16 * t;
    const uint4* const low = mine && !(g & 1) ? from : zeros + 1;
    const uint4* const high = mine && (g & 1) ? from + 1 : zeros;
    const uint4 codes_of_scales = scales[number % stages];
#pragma unroll
    for (int q = 0; q < 8; ++q) {
      const uint4 x = stage[8 * t + (q ^ (2 * t + (g & 1)))];
      const uint4 b0 = low[2 * q], b1 = high[2 * q];
      const uint32_t fragments[8] = {b0.x, b0.y, b0.z, b0.w, b1.x, b1.y, b1.z, b1.w};
      uint4 sums = magic;
#pragma unroll
      for (int p = 0; p < 4; ++p) {
        const uint32_t codes = word(x, p), other = codes ^ 0x88888888;
        const uint4 parts = make_uint4(lookup(table, codes), lookup(table, other),
                                       lookup(table, upper(codes)), lookup(table, upper(other)));
        sums = mma(parts, fragments[2 * p], fragments[2 * p + 1], sums);
      }
      const uint32_t pair = word(codes_of_scales, q / 2);
      const float2 product =
          __half22float2(__hmul2(fp8x2(q & 1 ? upper(pair) : pair), factors[step][q]));
      total = fmaf(__uint_as_float(sums.x) - __uint_as_float(sums.z), product.x, total);
      total = fmaf(__uint_as_float(sums.y) - __uint_as_float(sums.w), product.y, total);
    }
    __syncwarp();
    fetch(number + stages);
    if (number + stages < count) scales[number % stages] = scales_of(number + stages);
    if (step == steps - 1) {
      total += __shfl_xor_sync(0xffffffff, total, 1);
      total += __shfl_xor_sync(0xffffffff, total, 2);
      if (t == 0) partial[team][number / steps][warp][g] = total;
      total = 0.f;
    }
  }
  __syncthreads();
  const int thread = warp * 32 + lane;
  for (int i = thread; i < groups * kRows; i += 32 * warps) {
    float sum = 0.f;
#pragma unroll
    for (int w = 0; w < warps; ++w) sum += partial[team][i / kRows][w][i % kRows];
    if (row0 + i < m) c[first_row + i] = __float2half(sum);
  }
}

template <int warps, int teams, int groups, int steps, int stages>
int launch(void** tensors, int m, int chunks, int l, void* stream) {
  constexpr int units = teams * warps * kChunks * (2 * steps + stages * kRows) + kChunks;
  constexpr int rows = teams * groups * kRows, bytes = units * 16;
  const bool whole = m % rows == 0 && chunks == warps * steps * kChunks;
  const auto kernel = whole ? gemv<warps, teams, groups, steps, stages, true>
                            : gemv<warps, teams, groups, steps, stages, false>;
  cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
  kernel<<<dim3((m + rows - 1) / rows, l), dim3(32, warps, teams), bytes, (cudaStream_t)stream>>>(
      (const uint8_t*)tensors[0], (const uint8_t*)tensors[1], (const uint8_t*)tensors[2],
      (const uint8_t*)tensors[3], (__half*)tensors[4], m, chunks);
  return cudaGetLastError();
}
"""


@dataclass(frozen=True)
class Variant:
    """As the kernel's template: warps along k, teams with rows of their own, groups of eight rows a
    team does, steps along k, stages in flight."""

    warps: int
    teams: int
    groups: int
    steps: int
    stages: int

    @property
    def name(self) -> str:
        return f"gemv_{'_'.join(map(str, astuple(self)))}"

    @property
    def shared_bytes(self) -> int:
        return self.teams * self.warps * 512 * (2 * self.steps + self.stages * 8) + 512


def variants(k: int) -> list[Variant]:
    """Those for a k that fit a multiprocessor twice; where a warp has two stages to do, it has both
    in flight."""
    slices = -(-k // 1024)
    found = []
    for steps, teams, groups in itertools.product((1, 2, 4), (1, 2, 4), (1, 2)):
        warps = -(-slices // steps)
        variant = Variant(warps, teams, groups, steps, min(2, groups * steps))
        fits = 64 <= 32 * warps * teams <= 512 and variant.shared_bytes <= 113 << 10
        if fits and (steps == 1 or slices > 2):
            found.append(variant)
    return found


def exports(variant: Variant) -> str:
    """The source with a function for a variant."""
    parameters = ", ".join(map(str, astuple(variant)))
    return f"""{source}
extern "C" int {variant.name}(void** tensors, int m, int chunks, int l, void* stream) {{
  return launch<{parameters}>(tensors, m, chunks, l, stream);
}}
"""


def compile_all(wanted: list[Variant], arch: str) -> dict[Variant, pathlib.Path]:
    """A library for each variant, compiled beside each other and kept in the temporary folder.
    Raises CalledProcessError where nvcc does not take it."""
    digest = hashlib.sha256(f"{source}{arch}".encode()).hexdigest()[:16]
    folder = pathlib.Path(tempfile.gettempdir(), f"nvfp4-tensor-cores-{os.getuid()}-{digest}")
    folder.mkdir(mode=0o700, exist_ok=True)

    def compiled(variant: Variant) -> pathlib.Path:
        library = folder / f"{variant.name}.so"
        if not library.exists():
            text, made = (folder / f"{variant.name}.{os.getpid()}.{end}" for end in ("cu", "so"))
            text.write_text(exports(variant))
            options = ["-O3", "-std=c++17", f"-arch={arch}", "-Xcompiler=-fPIC", "-shared"]
            command = ["nvcc", *options, "-o", str(made), str(text)]
            subprocess.run(command, check=True, capture_output=True)
            made.rename(library)
        return library

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        return dict(zip(wanted, pool.map(compiled, wanted), strict=True))


@functools.cache
def libraries(k: int, arch: str) -> dict[Variant, ctypes.CDLL]:
    """Every variant of a k. Raises CalledProcessError."""
    return {each: ctypes.CDLL(str(path)) for each, path in compile_all(variants(k), arch).items()}


def prepare(data: Any, variant: Variant) -> Callable[[], torch.Tensor]:
    """A call without arguments that fills c, for one input and variant."""
    a, b, sfa, sfb, _, _, c = data
    m, k_packed, l = a.shape
    major, minor = torch.cuda.get_device_capability()
    library = libraries(2 * k_packed, f"sm_{major}{minor}")[variant]
    function = getattr(library, variant.name)
    pointers = (ctypes.c_void_p * 5)(*(x.data_ptr() for x in (a, b, sfa, sfb, c)))

    def call() -> torch.Tensor:
        stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
        failed = function(pointers, m, k_packed // 16, l, stream)
        if failed:
            raise RuntimeError(f"{variant}: CUDA error {failed}")
        return c

    return call
