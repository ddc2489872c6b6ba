"""Ways of writing CuTe DSL that submissions use, from compiling to the right result."""

from collections.abc import Iterator

import pytest

pytest.importorskip("cutlass")

import cutlass
import cutlass.cute as cute
import cutlass.cute.testing
import torch
from cutlass.cute.runtime import from_dlpack
from cutlass.utils import SmemAllocator

from nvfp4.emulation import Emulation, install
from nvfp4.records.launch_errors import UnsupportedCall


@pytest.fixture(scope="module", autouse=True)
def emulation() -> Iterator[Emulation]:
    with install() as active:
        yield active


@cute.struct
class Storage:
    values: cute.struct.Align[cute.struct.MemRange[cutlass.Float32, 128], 128]


@cute.kernel
def reverse_exp_kernel(mA: cute.Tensor, mC: cute.Tensor) -> None:
    tidx, _, _ = cute.arch.thread_idx()
    storage = SmemAllocator().allocate(Storage)
    values = storage.values.get_tensor(cute.make_layout(128))
    values[tidx] = cute.math.exp(mA[tidx])
    cute.arch.sync_threads()
    mC[tidx] = cute.math.sqrt(cute.arch.warp_reduction_sum(values[127 - tidx]))


@cute.jit
def reverse_exp(mA: cute.Tensor, mC: cute.Tensor) -> None:
    reverse_exp_kernel(mA, mC).launch(grid=(1, 1, 1), block=(128, 1, 1))


def test_shared_structs_math_and_warp_reductions() -> None:
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


def test_compile_time_arguments_and_printf(capsys: pytest.CaptureFixture[str]) -> None:
    a = torch.zeros(4)
    count(from_dlpack(a), 3)
    assert a.tolist() == [1, 1, 1, 0]
    assert "counted 3 times" in capsys.readouterr().out


def test_compile_options_and_executors() -> None:
    a = torch.zeros(4)
    compiled = cute.compile(count, from_dlpack(a), 2, options="--opt-level 2")
    compiled(from_dlpack(a))
    compiled.to(None)(from_dlpack(a))
    assert a.tolist() == [2, 2, 0, 0]


@pytest.mark.parametrize("name", ["benchmark", "tune", "autotune_jit"])
def test_what_measures_time_is_refused_by_name(name: str) -> None:
    with pytest.raises(UnsupportedCall, match=f"cutlass.testing.{name} measures time"):
        getattr(cutlass.cute.testing, name)()
