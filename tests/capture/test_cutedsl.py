"""CuTe DSL launches as they arrive at the emulator, from a machine without a driver."""

import ctypes
import struct
from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("cutlass")

import cutlass
import cutlass.cute as cute
import cutlass.cute.testing
import cutlass.utils
import torch
from conftest import intercept
from cuda.bindings import driver
from cutlass.cute.runtime import from_dlpack, make_ptr
from cutlass.utils import SmemAllocator

from nvfp4.capture.codes import Code
from nvfp4.capture.cutedsl.callbacks import make_callbacks
from nvfp4.capture.cutedsl.host import HostRuntime
from nvfp4.capture.device import device_for
from nvfp4.emulation import Emulation, install
from nvfp4.emulator.errors import EmulatorError, OutOfBounds
from nvfp4.records.launch import Launch
from nvfp4.records.launch_errors import LaunchRefused, UnsupportedCall


@cute.kernel
def scale_kernel(source: cute.Tensor, target: cute.Tensor, factor: cutlass.Float32) -> None:
    tidx, _, _ = cute.arch.thread_idx()
    bidx, _, _ = cute.arch.block_idx()
    i = bidx * 32 + tidx
    if i < cute.size(target):
        target[i] = source[i] * factor


@cute.kernel
def add_kernel(source: cute.Tensor, target: cute.Tensor) -> None:
    tidx, _, _ = cute.arch.thread_idx()
    bidx, _, _ = cute.arch.block_idx()
    i = bidx * 32 + tidx
    if i < cute.size(target):
        target[i] = target[i] + source[i]


@cute.jit
def twice_and_once(
    source: cute.Tensor, target: cute.Tensor, factor: cutlass.Float32, stream: driver.CUstream
) -> None:
    blocks = cute.ceil_div(cute.size(target), 32)
    scale_kernel(source, target, factor).launch(
        grid=(blocks, 1, 1), block=(32, 1, 1), stream=stream
    )
    add_kernel(source, target).launch(
        grid=(blocks, 1, 1), block=(32, 1, 1), cluster=(1, 1, 1), smem=64 * 1024, stream=stream
    )


@cute.jit
def by_pointer(source: cute.Pointer, target: cute.Pointer, n: cutlass.Int32) -> None:
    layout = cute.make_layout(n)
    scale_kernel(cute.make_tensor(source, layout), cute.make_tensor(target, layout), 3.0).launch(
        grid=(cute.ceil_div(n, 32), 1, 1), block=(32, 1, 1)
    )


def pointer(tensor: torch.Tensor) -> Any:
    return make_ptr(cutlass.Float32, tensor.data_ptr(), cute.AddressSpace.gmem, assumed_align=4)


def compiled_for(*tensors: torch.Tensor) -> Any:
    """by_pointer, compiled for a source and a target; takes others and a number of elements."""
    compiled = cute.compile(by_pointer, *map(pointer, tensors), 8)
    return lambda source, target, n: compiled(pointer(source), pointer(target), n)


@pytest.fixture
def launches() -> Iterator[list[Launch]]:
    caught: list[Launch] = []
    with intercept(caught.append):
        yield caught


def test_two_kernels_of_one_function_arrive_in_order(launches: list[Launch]) -> None:
    source, target = torch.arange(70.0), torch.zeros(70)
    arguments = (from_dlpack(source), from_dlpack(target), 2.0, driver.CUstream(0))
    cute.compile(twice_and_once, *arguments)(*arguments)
    first, second = launches
    assert "scale_kernel" in first.kernel
    assert "add_kernel" in second.kernel
    assert first.grid == second.grid == (3, 1, 1)
    assert first.block == second.block == (32, 1, 1)
    assert (first.shared_bytes, second.shared_bytes) == (0, 64 * 1024)
    assert first.cluster == second.cluster == (1, 1, 1)
    assert f".visible .entry {first.kernel}" in first.ptx
    assert first.parameters[0][:8] == struct.pack("<Q", source.data_ptr())
    assert first.parameters[1][:8] == struct.pack("<Q", target.data_ptr())
    assert first.parameters[2] == struct.pack("<f", 2.0)
    assert len(second.parameters) == 2


def test_a_compiled_function_is_called_again_with_other_tensors(emulation: Emulation) -> None:
    compiled = compiled_for(torch.zeros(1), torch.zeros(1))
    for n in (5, 40, 100):
        source, target = torch.arange(float(n)), torch.zeros(n)
        compiled(source, target, n)
        assert torch.equal(target, 3 * source)
    assert [report.ctas_total for report in emulation.launches] == [1, 2, 4]


def test_a_function_survives_from_one_emulation_to_the_next() -> None:
    source, target = torch.arange(8.0), torch.zeros(8)
    with install():
        compiled = compiled_for(source, target)
        compiled(source, target, 8)
    with install() as second:
        target.zero_()
        compiled(source, target, 8)
        assert torch.equal(target, 3 * source)
        assert len(second.launches) == 1
    with pytest.raises(Exception, match=r"cudaErrorLaunchFailure|driver"):
        compiled(source, target, 8)


def test_an_error_of_the_emulator_surfaces_at_the_call(emulation: Emulation) -> None:
    # In a buffer of its own, so that nothing else can lie behind it.
    source, target = torch.zeros(4096), torch.zeros(4096)
    compiled = compiled_for(source, target)
    with pytest.raises(OutOfBounds) as caught:
        compiled(source, target, 1 << 30)
    assert isinstance(caught.value, EmulatorError)
    compiled(source, target, 4096)
    assert len(emulation.launches) == 1


def test_ptx_to_be_kept_where_nothing_can_be_written_is_emulated(launches: list[Launch]) -> None:
    given = pointer(torch.zeros(8)), pointer(torch.zeros(8)), 8
    cute.compile(by_pointer, *given, options="--keep-ptx --dump-dir /proc/self")(*given)
    assert "kernel" in launches[0].ptx


def test_an_architecture_of_another_gpu_in_the_environment_is_refused(
    monkeypatch: pytest.MonkeyPatch, launches: list[Launch]
) -> None:
    monkeypatch.setenv("CUTE_DSL_ARCH", "sm_90a")
    given = torch.zeros(8), torch.zeros(8)
    with pytest.raises(LaunchRefused, match="sm_90a"):
        compiled_for(*given)(*given, 8)


def test_what_the_receiver_raises_is_raised_unchanged() -> None:
    def refuse(launch: Launch) -> None:
        raise KeyboardInterrupt

    source, target = torch.zeros(8), torch.zeros(8)
    with intercept(refuse):
        compiled = compiled_for(source, target)
        with pytest.raises(KeyboardInterrupt):
            compiled(source, target, 8)


@pytest.mark.parametrize(
    ("asked", "why"),
    [({"smem": 300 * 1024}, "307200 bytes"), ({"cooperative": True}, "5000 blocks")],
)
def test_more_than_a_device_has_is_refused(
    asked: dict[str, Any], why: str, launches: list[Launch]
) -> None:
    @cute.jit
    def greedy(source: cute.Tensor, target: cute.Tensor) -> None:
        add_kernel(source, target).launch(grid=(5000, 1, 1), block=(32, 1, 1), **asked)

    source, target = from_dlpack(torch.zeros(8)), from_dlpack(torch.zeros(8))
    with pytest.raises(LaunchRefused, match=why):
        greedy(source, target)
    assert not launches


@pytest.mark.parametrize(
    "options", [{"use_pdl": True}, {"min_blocks_per_mp": 2}, {"cooperative": True}], ids=str
)
def test_launch_options_need_no_driver(options: dict[str, Any], emulation: Emulation) -> None:
    @cute.jit
    def with_options(source: cute.Tensor, target: cute.Tensor) -> None:
        add_kernel(source, target).launch(grid=(1, 1, 1), block=(32, 1, 1), **options)

    target = torch.ones(8)
    with_options(from_dlpack(torch.arange(8.0)), from_dlpack(target))
    assert torch.equal(target, torch.arange(8.0) + 1)


@pytest.mark.parametrize("arch", ["sm_90a", "sm_100a"])
def test_the_architecture_is_the_one_asked_for(arch: str) -> None:
    caught: list[Launch] = []
    with intercept(caught.append, arch=arch):
        source, target = torch.zeros(8), torch.zeros(8)
        compiled_for(source, target)(source, target, 8)
    assert f".target {arch}" in caught[0].ptx


def test_an_unknown_architecture_is_refused() -> None:
    with pytest.raises(ValueError, match="sm_75"), intercept(lambda launch: None, arch="sm_75"):
        pass
    assert device_for("sm_100f").multiprocessors == 148


def test_two_interceptions_at_a_time_are_refused(launches: list[Launch]) -> None:
    with pytest.raises(RuntimeError, match="already"), intercept(launches.append):
        pass


def test_common_questions_to_the_driver_are_answered(launches: list[Launch]) -> None:
    assert cutlass.utils.HardwareInfo().get_max_active_clusters(2) == 74
    assert cutlass.utils.HardwareInfo().get_device_multiprocessor_count() == 148
    assert int(cutlass.torch.current_stream()) == int(cutlass.torch.default_stream()) == 0
    cutlass.cuda.initialize_cuda_context()


def test_the_first_failure_is_raised_not_the_assertion_that_follows_it() -> None:
    runtime = HostRuntime()
    callbacks = make_callbacks(runtime, ("",), ["cuda_dialect_assert_success", "_cudaMalloc"])
    assert callbacks["cuda_dialect_assert_success"](0) == 0
    runtime.raise_pending()
    assert callbacks["cuda_dialect_assert_success"](2) == Code.LAUNCH_FAILURE
    with pytest.raises(LaunchRefused, match="error 2"):
        runtime.raise_pending()
    callbacks["cuda_dialect_assert_success"](callbacks["_cudaMalloc"]())
    with pytest.raises(Exception, match="cudaMalloc, which is not captured"):
        runtime.raise_pending()


def test_packed_arguments_launch_like_a_call(emulation: Emulation) -> None:
    source, target = torch.arange(32.0), torch.zeros(32)
    arguments = (from_dlpack(source), from_dlpack(target), 2.0, driver.CUstream(0))
    executor = cute.compile(twice_and_once, *arguments).to(None)
    values, _kept = executor.generate_execution_args(*arguments)
    executor.run_compiled_program(values)
    assert torch.equal(target, 3 * source)
    target.zero_()
    error = ctypes.c_int32()
    addresses = [getattr(value, "value", value) for value in values]
    packed = (ctypes.c_void_p * (len(values) + 1))(*addresses, ctypes.addressof(error))
    executor.jit_module.capi_func(packed)
    assert error.value == 0
    assert torch.equal(target, 3 * source)
    assert len(emulation.launches) == 4


# Ways of writing CuTe DSL that submissions use.


@cute.struct
class Storage:
    values: cute.struct.Align[cute.struct.MemRange[cutlass.Float32, 128], 128]


@cute.kernel
def reverse_exp_kernel(mA: cute.Tensor, mC: cute.Tensor) -> None:
    tidx, _, _ = cute.arch.thread_idx()
    values = SmemAllocator().allocate(Storage).values.get_tensor(cute.make_layout(128))
    values[tidx] = cute.math.exp(mA[tidx])
    cute.arch.sync_threads()
    mC[tidx] = cute.math.sqrt(cute.arch.warp_reduction_sum(values[127 - tidx]))


@cute.jit
def reverse_exp(mA: cute.Tensor, mC: cute.Tensor) -> None:
    reverse_exp_kernel(mA, mC).launch(grid=(1, 1, 1), block=(128, 1, 1))


def test_shared_structs_math_and_warp_reductions(emulation: Emulation) -> None:
    a, c = torch.randn(128), torch.zeros(128)
    reverse_exp(from_dlpack(a), from_dlpack(c))
    sums = torch.exp(a).flip(0).reshape(4, 32).sum(1)
    assert torch.allclose(c, sums.sqrt().repeat_interleave(32), rtol=1e-5)


@cute.kernel
def count_kernel(mA: cute.Tensor, times: cutlass.Constexpr) -> None:
    for i in cutlass.range_constexpr(times):
        mA[i] = mA[i] + 1.0
    cute.printf("counted {} times", cutlass.Int32(times))


@cute.jit
def count(mA: cute.Tensor, times: cutlass.Constexpr) -> None:
    count_kernel(mA, times).launch(grid=(1, 1, 1), block=(1, 1, 1))


def test_compile_time_arguments_and_printf(
    emulation: Emulation, capsys: pytest.CaptureFixture[str]
) -> None:
    a = torch.zeros(4)
    count(from_dlpack(a), 3)
    assert a.tolist() == [1, 1, 1, 0]
    assert "counted 3 times" in capsys.readouterr().out


def test_compile_options_and_executors(emulation: Emulation) -> None:
    a = torch.zeros(4)
    compiled = cute.compile(count, from_dlpack(a), 2, options="--opt-level 2")
    compiled(from_dlpack(a))
    compiled.to(None)(from_dlpack(a))
    assert a.tolist() == [2, 2, 0, 0]


@pytest.mark.parametrize("name", ["benchmark", "tune", "autotune_jit"])
def test_what_measures_time_is_refused_by_name(emulation: Emulation, name: str) -> None:
    with pytest.raises(UnsupportedCall, match=f"cutlass.testing.{name} measures time"):
        getattr(cute.testing, name)()
