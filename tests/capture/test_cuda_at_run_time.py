"""CUDA text that Python compiles at run time: torch's compiler, NVRTC, the driver."""

import ctypes
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from conftest import users_line

from nvfp4.capture.cuda.nvrtc import nvcc_options
from nvfp4.capture.cuda.runtime import RUNTIME
from nvfp4.capture.cuda.toolchain import MissingToolchain
from nvfp4.emulation import Emulation
from nvfp4.emulator.errors import OutOfBounds
from nvfp4.records.launch_errors import NeedsGpu, UnsupportedCall

CUDA = r"""
#include <cuda_fp16.h>
namespace N { __constant__ float table[2] = {1.f, 2.f}; }
extern "C" __global__ void fill(float *out, int n, double value) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) out[i] = value;
}
template <class T, int K> __global__ void scale(T *data, T by) { data[threadIdx.x] *= by * K; }
template <int M> __global__ void __launch_bounds__(M) look_up(float *out) {
  out[threadIdx.x] = N::table[threadIdx.x];
}
__global__ void over(float *out, int n) {
  out[n + threadIdx.x] = 1.f;  // past the end
}
"""

PTX = """
.version 8.6
.target sm_80
.address_size 64
.visible .entry three(.param .u64 out) {
  .reg .b64 %rd<3>;
  ld.param.u64 %rd1, [out];
  st.global.u32 [%rd1], 3;
  ret;
}
"""

SOURCE = Path(__file__).read_text().splitlines()
LINE_OF_THE_FAULT = 1 + next(i for i, line in enumerate(SOURCE) if "// past the end" in line)


@pytest.fixture(scope="module")
def driver(emulated: Emulation) -> Any:
    return pytest.importorskip("cuda.bindings.driver")


@pytest.fixture(scope="module")
def nvrtc(driver: Any) -> Any:
    return pytest.importorskip("cuda.bindings.nvrtc")


def check(result: tuple[Any, ...]) -> Any:
    error, *values = result
    assert int(error) == 0, result
    return values[0] if len(values) == 1 else values


EXPRESSIONS = (b"scale<float, 3>", b"look_up<2>", b"&N::table", b"over")


@pytest.fixture(scope="module")
def compiled(nvrtc: Any) -> tuple[bytes, dict[bytes, bytes]]:
    """The PTX of the text above and the names that it has for EXPRESSIONS."""
    program = check(nvrtc.nvrtcCreateProgram(CUDA.encode(), b"probe.cu", 0, None, None))
    for each in EXPRESSIONS:
        check(nvrtc.nvrtcAddNameExpression(program, each))
    options = [b"--gpu-architecture=compute_100", b"--std=c++17", b"--use_fast_math", b"-DONE=1"]
    check(nvrtc.nvrtcCompileProgram(program, len(options), options))
    ptx = b" " * check(nvrtc.nvrtcGetPTXSize(program))
    check(nvrtc.nvrtcGetPTX(program, ptx))
    names = {each: check(nvrtc.nvrtcGetLoweredName(program, each)) for each in EXPRESSIONS}
    check(nvrtc.nvrtcDestroyProgram(program))
    return ptx, names


@pytest.fixture(scope="module")
def module(driver: Any, compiled: tuple[bytes, dict[bytes, bytes]]) -> Any:
    check(driver.cuInit(0))
    check(driver.cuCtxSetCurrent(check(driver.cuDevicePrimaryCtxRetain(0))))
    return check(driver.cuModuleLoadData(compiled[0]))


Find = Callable[[bytes], Any]


@pytest.fixture(scope="module")
def kernel(driver: Any, module: Any, compiled: tuple[bytes, dict[bytes, bytes]]) -> Find:
    """A kernel of the module by its name or expression."""
    return lambda name: check(driver.cuModuleGetFunction(module, compiled[1].get(name, name)))


# torch.cuda._compile_kernel


@pytest.fixture(scope="module")
def compile_kernel(emulated: Emulation) -> Any:
    return pytest.importorskip("torch.cuda", reason="torch")._compile_kernel


def test_torch_compiles_and_launches(compile_kernel: Any, tensor: torch.Tensor) -> None:
    fill = compile_kernel(CUDA, "fill")
    fill(grid=(1, 1, 1), block=(32, 1, 1), args=[tensor, 30, 2.5])
    assert tensor.tolist() == [2.5] * 30 + [0.0] * 2
    with pytest.raises(RuntimeError, match=r"fill: .* 2048 in all; 1024 are the most"):
        fill(grid=(1, 1, 1), block=(2048, 1, 1), args=[tensor, 30, 2.5])


def test_torch_instantiates_a_template(compile_kernel: Any, tensor: torch.Tensor) -> None:
    double = tensor.double() + 1
    scale = compile_kernel(CUDA, "scale<double, 3>", nvcc_options=["--use_fast_math"])
    scale(block=(32, 1, 1), args=[double, 0.5], stream=torch.cuda.Stream())
    assert double.tolist() == [1.5] * 32


def test_a_text_that_asks_for_nvrtc_gets_what_nvrtc_compiles(
    compile_kernel: Any, tensor: torch.Tensor
) -> None:
    source = """
#if defined(__CUDACC_RTC__) && !defined(__NVCC__)
extern "C" __global__ void which(float *out) { out[0] = 7; }
#else
extern "C" __global__ void which(float *out) {}
#endif
"""
    compile_kernel(source, "which")((1, 1, 1), (1, 1, 1), (tensor,))
    assert tensor[0] == 7


def test_torchs_errors_show_the_line_of_the_python_file(compile_kernel: Any) -> None:
    wrong = 'extern "C" __global__ void k(float *p) { p[0] = undefined_here; }'
    line = 1 + next(i for i, text in enumerate(SOURCE) if "undefined_here; }" in text)
    with pytest.raises(RuntimeError, match=rf"at_run_time.py\({line}\): error: identifier"):
        compile_kernel(wrong.replace("\\", ""), "k")


# NVRTC and the driver


def test_names_of_templates_and_variables(compiled: tuple[bytes, dict[bytes, bytes]]) -> None:
    ptx, names = compiled
    assert names[b"scale<float, 3>"] == b"_Z5scaleIfLi3EEvPT_S0_"
    assert names[b"&N::table"] == b"_ZN1N5tableE"
    assert ptx.endswith(b"\0")
    assert b"nvfp4_name" not in ptx


def test_a_compile_error_is_in_the_log(nvrtc: Any) -> None:
    text = b'#include "mine.h"\n__global__ void k() { one(); two(); }'
    header = b"__device__ inline void one() {}"
    program = check(nvrtc.nvrtcCreateProgram(text, b"k.cu", 1, [header], [b"mine.h"]))
    (error,) = nvrtc.nvrtcCompileProgram(program, 0, [])
    assert error == nvrtc.nvrtcResult.NVRTC_ERROR_COMPILATION
    log = b" " * check(nvrtc.nvrtcGetProgramLogSize(program))
    check(nvrtc.nvrtcGetProgramLog(program, log))
    assert b'identifier "two" is undefined' in log
    assert b"one" not in log.split(b"error")[1].split(b"\n")[0]
    error, _ = nvrtc.nvrtcGetPTXSize(program)
    assert int(error) != 0


def _address_of_pointers(*values: Any) -> tuple[Any, int]:
    array = (ctypes.c_void_p * len(values))(*(ctypes.addressof(each) for each in values))
    return array, ctypes.addressof(array)


@pytest.mark.parametrize("form", ["values and types", "address", "numpy"])
def test_parameters_of_a_launch(driver: Any, kernel: Find, tensor: torch.Tensor, form: str) -> None:
    pointer, count, value = (
        ctypes.c_void_p(tensor.data_ptr()),
        ctypes.c_int(32),
        ctypes.c_double(4.0),
    )
    parameters: Any
    if form == "values and types":
        types = (ctypes.c_void_p, ctypes.c_int, ctypes.c_double)
        parameters = ((tensor.data_ptr(), 32, 4.0), types)
    elif form == "address":
        kept, parameters = _address_of_pointers(pointer, count, value)
    else:
        kept = np.array([ctypes.addressof(each) for each in (pointer, count, value)], np.uint64)
        parameters = kept.ctypes.data
    stream = check(driver.cuStreamCreate(0))
    check(driver.cuLaunchKernel(kernel(b"fill"), 1, 1, 1, 32, 1, 1, 0, stream, parameters, 0))
    check(driver.cuStreamSynchronize(stream))
    assert tensor.tolist() == [4.0] * 32


def test_a_launch_by_configuration(driver: Any, kernel: Find, tensor: torch.Tensor) -> None:
    config = driver.CUlaunchConfig()
    config.gridDimX = config.gridDimY = config.gridDimZ = 1
    config.blockDimX, config.blockDimY, config.blockDimZ = 32, 1, 1
    attribute = driver.CUlaunchAttribute()
    attribute.id = driver.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION
    attribute.value.programmaticStreamSerializationAllowed = 1
    config.attrs, config.numAttrs = [attribute], 1
    tensor += 1
    parameters = ((tensor.data_ptr(), 2.0), (ctypes.c_void_p, ctypes.c_float))
    check(driver.cuLaunchKernelEx(config, kernel(b"scale<float, 3>"), parameters, 0))
    assert tensor.tolist() == [6.0] * 32


def test_refused_launches_return_cudas_code(
    driver: Any, kernel: Find, tensor: torch.Tensor
) -> None:
    look_up = kernel(b"look_up<2>")
    parameters = ((tensor.data_ptr(),), (ctypes.c_void_p,))

    def launched(threads: int, shared: int) -> Any:
        return driver.cuLaunchKernel(look_up, 1, 1, 1, threads, 1, 1, shared, 0, parameters, 0)[0]

    errors = driver.CUresult
    assert launched(1025, 0) == errors.CUDA_ERROR_INVALID_VALUE
    assert b"1025 in all" in check(driver.cuGetErrorString(errors.CUDA_ERROR_INVALID_VALUE))
    assert launched(3, 0) == errors.CUDA_ERROR_INVALID_VALUE
    assert launched(2, 50 * 1024) == errors.CUDA_ERROR_INVALID_VALUE
    which = driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
    check(driver.cuFuncSetAttribute(look_up, which, 50 * 1024))
    assert check(driver.cuFuncGetAttribute(which, look_up)) == 50 * 1024
    assert launched(2, 50 * 1024) == errors.CUDA_SUCCESS
    assert tensor[:2].tolist() == [1.0, 2.0]


def test_a_fault_is_raised_by_the_launch(driver: Any, kernel: Find, tensor: torch.Tensor) -> None:
    parameters = ((tensor.data_ptr(), 32), (ctypes.c_void_p, ctypes.c_int))
    with pytest.raises(OutOfBounds) as caught:
        driver.cuLaunchKernel(kernel(b"over"), 1, 1, 1, 4, 1, 1, 0, 0, parameters, 0)
    assert users_line(caught.value) == (Path(__file__).name, LINE_OF_THE_FAULT)
    check(driver.cuCtxSynchronize())


def test_variables_and_memory(
    driver: Any,
    module: Any,
    kernel: Find,
    compiled: tuple[bytes, dict[bytes, bytes]],
    tensor: torch.Tensor,
) -> None:
    address, size = check(driver.cuModuleGetGlobal(module, compiled[1][b"&N::table"]))
    assert size == 8
    before, values = np.zeros(2, np.float32), np.array([5, 7], np.float32)
    check(driver.cuMemcpyDtoH(before.ctypes.data, address, 8))
    check(driver.cuMemcpyHtoD(address, values.ctypes.data, 8))
    space = check(driver.cuMemAlloc(8))
    check(driver.cuMemsetD32(space, 0, 2))
    parameters = ((int(space),), (ctypes.c_void_p,))
    check(driver.cuLaunchKernel(kernel(b"look_up<2>"), 1, 1, 1, 2, 1, 1, 0, 0, parameters, 0))
    check(driver.cuMemcpyDtoD(tensor.data_ptr(), space, 8))
    check(driver.cuMemcpyHtoD(address, before.ctypes.data, 8))
    assert tensor[:3].tolist() == [5.0, 7.0, 0.0]
    assert driver.cuMemsetD8(space, 0, 9)[0] == driver.CUresult.CUDA_ERROR_INVALID_VALUE
    check(driver.cuMemFree(space))
    assert driver.cuMemFree(space)[0] == driver.CUresult.CUDA_ERROR_INVALID_VALUE


def test_ptx_without_cuda_text(driver: Any, tensor: torch.Tensor) -> None:
    library = check(driver.cuLibraryLoadData(PTX.encode(), [], [], 0, [], [], 0))
    function = check(
        driver.cuKernelGetFunction(check(driver.cuLibraryGetKernel(library, b"three")))
    )
    pointer = ctypes.c_void_p(tensor.data_ptr())
    _kept, parameters = _address_of_pointers(pointer)
    check(driver.cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, 0, parameters, 0))
    assert tensor[:1].view(torch.int32).item() == 3
    check(driver.cuLibraryUnload(library))
    again = driver.cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, 0, parameters, 0)
    assert again[0] == driver.CUresult.CUDA_ERROR_INVALID_HANDLE


def test_modules_that_cannot_be_loaded(driver: Any, module: Any) -> None:
    errors = driver.CUresult
    assert driver.cuModuleLoadData(b"text")[0] == errors.CUDA_ERROR_INVALID_IMAGE
    wrong = PTX.replace("ret;", "return;").encode()
    assert driver.cuModuleLoadData(wrong)[0] == errors.CUDA_ERROR_INVALID_PTX
    assert driver.cuModuleGetFunction(module, b"absent")[0] == errors.CUDA_ERROR_NOT_FOUND
    with pytest.raises(UnsupportedCall, match="machine code"):
        driver.cuModuleLoadData(b"\x7fELF and more")


def test_what_is_not_emulated_is_named(driver: Any, kernel: Find) -> None:
    with pytest.raises(UnsupportedCall, match="cuGraphCreate"):
        driver.cuGraphCreate(0)
    with pytest.raises(UnsupportedCall, match="fill is launched with packed parameters"):
        driver.cuLaunchKernel(kernel(b"fill"), 1, 1, 1, 1, 1, 1, 0, 0, 0, 1)
    start, stop = check(driver.cuEventCreate(0)), check(driver.cuEventCreate(0))
    with pytest.raises(NeedsGpu, match="no time can be measured"):
        driver.cuEventElapsedTime(start, stop)


def test_the_device_is_a_b200(driver: Any) -> None:
    which = driver.CUdevice_attribute.CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT
    assert check(driver.cuDeviceGetAttribute(which, 0)) == 148
    assert check(driver.cuDeviceGetName(32, 0)).startswith(b"NVIDIA B200")
    assert driver.cuDeviceGet(1)[0] == driver.CUresult.CUDA_ERROR_INVALID_DEVICE


# The rest


def test_options_of_nvrtc_as_nvcc_takes_them() -> None:
    given = [
        *("--gpu-architecture=sm_90a", "-arch", "sm_90", "--std=c++20", "-G"),
        *("-I /a folder", "--include-path=/b", "-D ONE=1", "--define-macro=TWO", "--fmad=false"),
        *("--use_fast_math", "--pre-include=x.h", "-dlto", "--split-compile=0", "-lineinfo"),
        *("--dlto", "-optimization-info=inline", "--optimization-info=inline"),
    ]
    assert nvcc_options(given) == [
        *("-std=c++20", "-I/a folder", "-I/b", "-DONE=1", "-DTWO"),
        *("--fmad=false", "--use_fast_math", "-include=x.h"),
    ]


@pytest.mark.parametrize("option", ["-default-device", "--device-as-default-execution-space"])
def test_an_option_of_nvrtc_that_nvcc_lacks_is_refused_by_its_name(nvrtc: Any, option: str) -> None:
    code = b"void helper() {}"
    program = check(nvrtc.nvrtcCreateProgram(code, b"program.cu", 0, [], []))
    with pytest.raises(
        UnsupportedCall, match=f"the NVRTC option {option} has no counterpart"
    ) as it:
        nvrtc.nvrtcCompileProgram(program, 1, [option.encode()])
    assert "__device__" in str(it.value)


def test_no_compiler_is_said_in_one_sentence(
    emulated: Emulation, monkeypatch: pytest.MonkeyPatch
) -> None:
    from nvfp4.capture.cuda import compilers as libraries
    from nvfp4.capture.cuda import packages

    def missing() -> None:
        raise MissingToolchain("nvcc is missing")

    monkeypatch.setattr(libraries, "find_toolchain", missing)
    libraries.library.cache_clear()
    packages._opened.cache_clear()
    with pytest.raises(MissingToolchain, match="nvcc is missing"):
        torch.cuda._compile_kernel(CUDA, "fill")


def test_there_is_no_device_after_the_emulation(
    driver: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert check(driver.cuDeviceGetCount()) == 1
    with monkeypatch.context() as ended:
        ended.setattr(RUNTIME, "_run", None)
        for error, *_ in (driver.cuInit(0), driver.cuDeviceGetCount(), driver.cuCtxSynchronize()):
            assert error == driver.CUresult.CUDA_ERROR_NO_DEVICE
    check(driver.cuInit(0))
