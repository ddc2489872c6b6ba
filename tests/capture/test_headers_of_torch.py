"""A build that fails is tried with torch's own headers only where they may help."""

import pytest
import torch
from torch.utils import cpp_extension

from nvfp4.capture.cuda import headers_of_torch
from nvfp4.capture.cuda.architectures import Image
from nvfp4.capture.cuda.build import Request, Source, build
from nvfp4.capture.cuda.compilers import CompileError
from nvfp4.capture.cuda.headers_of_torch import torch_may_know
from nvfp4.emulation import Emulation


@pytest.mark.parametrize(
    ("error", "may"),
    [
        ('mine.py:12: error: identifier "totl" is undefined', False),
        ("mine.py:12: error: \u2018totl\u2019 was not declared in this scope", False),
        ("mine.py:3:10: fatal error: cute/tensor.hpp: No such file or directory", False),
        ("mine.py:3:10: fatal error: torch/nn.h: No such file or directory", True),
        ('mine.py:12: error: identifier "AT_DISPATCH_ALL_TYPES" is undefined', True),
        ('mine.py:12: error: namespace "at" has no member "softmax"', True),
        ("x.py:1: error: \u2018class at::Tensor\u2019 has no member named \u2018fft\u2019", True),
        ('mine.py:12: error: identifier "cublasCreate" is undefined', True),
        ('mine.py:12: error: expected a ";"', False),
        ('mine.py:1: error: identifier "x" is undefined\nmine.py:2: error: no operator "+"', True),
    ],
)
def test_what_torch_may_know(error: str, may: bool) -> None:
    assert torch_may_know(error, ["__global__ void k() {}"]) is may


def test_a_name_may_come_out_of_a_namespace_that_is_used() -> None:
    error = 'mine.py:12: error: identifier "empty_like" is undefined'
    assert torch_may_know(error, ["using namespace at;"])
    assert torch_may_know(error, ["using torch::empty_like;"])
    assert not torch_may_know(error, ["using namespace cooperative_groups;"])


SOURCE = """
#include <torch/extension.h>
__global__ void k(__nv_fp4x2_storage_t *a, __nv_fp8_e4m3 *b, __nv_bfloat16 *c, float *d) {
  d[0] = __half2float(__half(__nv_cvt_fp4_to_halfraw(*a & 15, __NV_E2M1)));
  d[0] += float(*b) + __bfloat162float(*c);
  d[1] = FLT_MAX;
}
int total(std::vector<int> of) { return std::accumulate(of.begin(), of.end(), INT_MIN); }
"""
FOUND_BY_TYPE = "#include <torch/types.h>\nvoid f(std::string *a) { sort(a, a + 2); }"


@pytest.mark.usefixtures("toolchain")
def test_names_without_an_include_do_not_take_torchs_own_headers() -> None:
    sources = Source("names.cu", SOURCE), Source("found_by_type.cpp", FOUND_BY_TYPE)
    built = build(Request("names", sources, (Image("compute_100a", "sm_100a"),), (10, 0)))
    assert built.headers == "slim"
    assert "cvt.rn.f16x2.e2m1x2" in "".join(built.ptx)


OF_FP4 = "void *f(at::Tensor x) { return x.data_ptr<c10::Float4_e2m1fn_x2>(); }"


@pytest.mark.usefixtures("toolchain")
@pytest.mark.parametrize(
    ("file", "included", "text"),
    [
        ("a.cpp", "torch/extension.h", "void f() { cudaDeviceSynchronize(); }"),
        ("a.cpp", "torch/extension.h", "__half f();"),
        ("a.cu", "ATen/cuda/CUDAContext.h", "void f() { c10::cuda::CUDAGuard g(0); }"),
        ("a.cu", "c10/cuda/CUDAStream.h", "void f() { AT_CUDA_CHECK(cudaSuccess); }"),
        ("a.cu", "torch/types.h", OF_FP4),
        ("a.cu", "cuda.h", "auto *f() { return cuTensorMapEncodeTiled; }"),
    ],
)
def test_what_torchs_own_headers_do_not_declare_is_an_error(
    monkeypatch: pytest.MonkeyPatch, file: str, included: str, text: str
) -> None:
    monkeypatch.setattr(headers_of_torch, "torch_may_know", lambda *_: False)
    source = Source(file, f"#include <{included}>\n{text}")
    with pytest.raises(CompileError):
        build(Request("names", (source,), (Image("compute_100a", "sm_100a"),), (10, 0)))


OPERATOR = """
#include <c10/cuda/CUDAGuard.h>
#include <torch/library.h>
void scale(float *x, int64_t count, float by, cudaStream_t stream);
void scaled(at::Tensor x, double by) {
  const c10::cuda::CUDAGuard guard(x.device());
  scale(x.data_ptr<float>(), x.numel(), by, c10::cuda::getCurrentCUDAStream());
}
TORCH_LIBRARY(own_headers, m) { m.def("scaled(Tensor(a!) x, float by=2) -> ()"); }
TORCH_LIBRARY_IMPL(own_headers, CUDA, m) { m.impl("scaled", &scaled); }
#ifdef SLIM_LIBRARY
#error "these headers are not torch's"
#endif
"""
KERNEL = """
__global__ void kernel(float *x, float by) { x[threadIdx.x] *= by; }
void scale(float *x, int64_t count, float by, cudaStream_t stream) {
  kernel<<<1, count, 0, stream>>>(x, by);
}
"""


@pytest.mark.corpus
@pytest.mark.parametrize("included", ["#include <cstdint>", "#include <torch/types.h>"])
def test_what_is_built_with_torchs_own_headers_runs(emulated: Emulation, included: str) -> None:
    options = {"no_implicit_headers": True, "is_python_module": False}
    cpp_extension.load_inline("own_headers", OPERATOR, included + KERNEL, **options)
    x = torch.ones(3, device="cuda")
    torch.ops.own_headers.scaled(x, by=1.5)
    torch.ops.own_headers.scaled(x)
    assert x.tolist() == [3.0, 3.0, 3.0]
