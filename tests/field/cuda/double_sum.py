# expect: pass
"""A thread a row, everything by hand and in double precision, with the permuted scales.

Arguments in a struct that carries strides; an optional output; py::arg with defaults.
"""

import torch
from torch.utils.cpp_extension import load_inline

text = """
#include <torch/extension.h>
#include <cuda_fp16.h>
#include <optional>

struct Scales {
    const uint8_t* base;
    int64_t group_m, group_k, batch;

    __device__ double at(int row, int block, int l) const
    {
        const uint8_t code = base[l * batch + row / 128 * group_m + block / 4 * group_k +
                                  row % 32 * 16 + row % 128 / 32 * 4 + block % 4];
        const int exponent = (code >> 3) & 0xf;
        double value = code & 0x7;
        value = exponent == 0 ? value / 512 : (8 + value) * exp2(exponent - 10.0);
        return code & 0x80 ? -value : value;
    }
};

struct Matrix {
    const uint8_t* base;
    int64_t row, byte, batch;

    __device__ uint8_t at(int r, int i, int l) const
    {
        return base[r * row + i * byte + l * batch];
    }
};

struct Problem {
    Matrix a, b;
    Scales sfa, sfb;
    __half* c;
    int m, k;
};

__device__ __noinline__ double fp4(uint8_t nibble)
{
    const int exponent = (nibble >> 1) & 3, mantissa = nibble & 1;
    const double value = exponent ? (1 + 0.5 * mantissa) * (1 << (exponent - 1)) : 0.5 * mantissa;
    return nibble & 8 ? -value : value;
}

__global__ void naive(Problem p)
{
    const int row = blockDim.x * blockIdx.x + threadIdx.x, l = blockIdx.y;
    if (row >= p.m) return;
    double sum = 0;
    for (int block = 0; block < p.k / 16; block++) {
        double dot = 0;
        for (int i = 8 * block; i < 8 * block + 8; i++) {
            const uint8_t x = p.a.at(row, i, l), y = p.b.at(0, i, l);
            dot += fp4(x & 0xf) * fp4(y & 0xf) + fp4(x >> 4) * fp4(y >> 4);
        }
        sum += dot * p.sfa.at(row, block, l) * p.sfb.at(0, block, l);
    }
    p.c[(int64_t)l * p.m + row] = __double2half(sum);
}

static Matrix matrix(const torch::Tensor& t)
{
    return {t.data_ptr<uint8_t>(), t.stride(0), t.stride(1), t.stride(2)};
}

static Scales scales(const torch::Tensor& t)
{
    return {t.data_ptr<uint8_t>(), t.stride(2), t.stride(4), t.stride(5)};
}

torch::Tensor run(torch::Tensor a, torch::Tensor b, torch::Tensor sfa, torch::Tensor sfb,
                  std::optional<torch::Tensor> c, int threads)
{
    TORCH_CHECK(c.has_value(), "no output");
    Problem p{matrix(a), matrix(b), scales(sfa), scales(sfb), (__half*)c->data_ptr(),
              (int)a.size(0), 2 * (int)a.size(1)};
    naive<<<dim3((p.m + threads - 1) / threads, a.size(2)), threads>>>(p);
    return *c;
}

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m)
{
    m.doc() = "naive";
    m.def("run", &run, "GEMV in double precision", py::arg("a"), py::arg("b"), py::arg("sfa"),
          py::arg("sfb"), py::arg("c") = py::none(), py::arg("threads") = 64);
}
"""

naive = load_inline(name="naive_double", cpp_sources="", cuda_sources=text, with_cuda=True)


def custom_kernel(data):
    a, b, sfa, sfb, sfa_permuted, sfb_permuted, c = data
    u8 = torch.uint8
    return naive.run(
        a.view(u8), b.view(u8), sfb=sfb_permuted.view(u8), sfa=sfa_permuted.view(u8), c=c
    )
