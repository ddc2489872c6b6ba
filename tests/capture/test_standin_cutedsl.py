"""CuTe DSL kernels on tensors of the stand-in device: what they get is global memory."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

pytest.importorskip("cutlass")

import cuda.bindings.driver as cuda
import cutlass
import cutlass.cute as cute
import torch
from cutlass.cute.runtime import from_dlpack, make_ptr

from nvfp4 import emulation
from nvfp4.capture import standin
from nvfp4.emulator.errors import OutOfBounds

pytestmark = pytest.mark.skipif(torch.cuda.is_available(), reason="there is a real CUDA device")


@pytest.fixture(scope="module", autouse=True)
def on_a_b200() -> Iterator[None]:
    with standin.install(), emulation.install():
        yield


@cute.kernel
def tiled_add_kernel(
    gA: cute.Tensor, gB: cute.Tensor, gC: cute.Tensor, layout_tv: cute.Layout
) -> None:
    tidx, _, _ = cute.arch.thread_idx()
    bidx, _, _ = cute.arch.block_idx()
    atom = cute.make_copy_atom(cute.nvgpu.CopyUniversalOp(), gA.element_type)
    tile = ((None, None), bidx)
    tA, tB, tC = (cute.composition(g[tile], layout_tv)[tidx, None] for g in (gA, gB, gC))
    rA, rB, rC = (cute.make_fragment_like(t) for t in (tA, tB, tC))
    cute.copy(atom, tA, rA)
    cute.copy(atom, tB, rB)
    rC.store(rA.load() + rB.load())
    cute.copy(atom, rC, tC)


@cute.jit
def tiled_add(mA: cute.Tensor, mB: cute.Tensor, mC: cute.Tensor, stream: cuda.CUstream) -> None:
    tiler, layout_tv = cute.make_layout_tv(
        cute.make_ordered_layout((4, 32), order=(1, 0)),
        cute.make_ordered_layout((4, 8), order=(1, 0)),
    )
    gA, gB, gC = (cute.zipped_divide(m, tiler) for m in (mA, mB, mC))
    tiled_add_kernel(gA, gB, gC, layout_tv).launch(
        grid=(cute.size(gC, mode=[1]), 1, 1),
        block=(cute.size(layout_tv, mode=[0]), 1, 1),
        stream=stream,
    )


WAYS: list[Callable[[torch.Tensor], Any]] = [
    from_dlpack,
    lambda x: from_dlpack(x, assumed_align=16),
    lambda x: from_dlpack(x, assumed_align=16).mark_layout_dynamic(),
    lambda x: from_dlpack(x, assumed_align=16).mark_layout_dynamic(leading_dim=1),
    lambda x: from_dlpack(x).mark_compact_shape_dynamic(
        mode=0, stride_order=(0, 1), divisibility=8
    ),
]


@pytest.mark.parametrize(
    ("way", "dtype"), [(WAYS[0], torch.float32), *((way, torch.float16) for way in WAYS)]
)
def test_copies_of_tensors_from_dlpack_compile_and_run(
    way: Callable[[torch.Tensor], Any], dtype: torch.dtype
) -> None:
    a, b = (torch.randn(32, 512, device="cuda", dtype=dtype) for _ in range(2))
    c = torch.zeros_like(a)
    arguments = [way(x) for x in (a, b, c)]
    compiled = cute.compile(
        tiled_add, *arguments, cuda.CUstream(torch.cuda.current_stream().cuda_stream)
    )
    for stream in (torch.cuda.default_stream(), torch.cuda.Stream()):
        c.zero_()
        with torch.cuda.stream(stream):
            compiled(*arguments, cuda.CUstream(torch.cuda.current_stream().cuda_stream))
        torch.cuda.synchronize()
        assert torch.equal(c, a + b)


@cute.kernel
def copy_kernel(source: cute.Tensor, target: cute.Tensor) -> None:
    tidx, _, _ = cute.arch.thread_idx()
    target[tidx] = source[tidx]


@cute.jit
def copy(source: cute.Tensor, target: cute.Tensor) -> None:
    copy_kernel(source, target).launch(grid=(1, 1, 1), block=(64, 1, 1))


@pytest.mark.parametrize("dtype", [torch.uint8, torch.float8_e4m3fn, torch.bfloat16], ids=str)
def test_narrow_elements_are_copied(dtype: torch.dtype) -> None:
    source = torch.randint(0, 100, (128,), dtype=torch.uint8, device="cuda").view(dtype)[:64]
    target = torch.zeros(128, dtype=torch.uint8, device="cuda").view(dtype)[:64]
    arguments = from_dlpack(source), from_dlpack(target)
    cute.compile(copy, *arguments)(*arguments)
    assert torch.equal(target.view(torch.uint8), source.view(torch.uint8))


def test_bytes_can_be_taken_for_another_type() -> None:
    source, target = (torch.randint(0, 100, (64,), dtype=torch.uint8).cuda() for _ in range(2))
    arguments = from_dlpack(source), from_dlpack(target)
    for argument in arguments:
        argument.element_type = cutlass.Float8E4M3FN
    copy(*arguments)
    assert torch.equal(source, target)


@cute.kernel
def dequantize_kernel(packed: cute.Tensor, values: cute.Tensor) -> None:
    tidx, _, _ = cute.arch.thread_idx()
    tile = (8,)
    source = cute.local_tile(packed, tile, (tidx,))
    target = cute.local_tile(values, tile, (tidx,))
    target.store(source.load().to(cutlass.Float16))


@cute.jit
def dequantize(packed: cute.Pointer, values: cute.Tensor) -> None:
    elements = cute.make_tensor(packed, cute.make_layout((256,)))
    dequantize_kernel(elements, values).launch(grid=(1, 1, 1), block=(32, 1, 1))


def test_fp4_behind_a_pointer_of_a_cuda_tensor_is_read() -> None:
    codes = torch.randint(0, 256, (128,), dtype=torch.uint8, device="cuda")
    packed = codes.view(torch.float4_e2m1fn_x2)
    values = torch.zeros(256, dtype=torch.float16, device="cuda")
    pointer = make_ptr(
        cutlass.Float4E2M1FN, packed.data_ptr(), cute.AddressSpace.gmem, assumed_align=16
    )
    argument = from_dlpack(values, assumed_align=16)
    cute.compile(dequantize, pointer, argument)(pointer, argument)
    table = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6], device="cuda", dtype=torch.float16)
    table = torch.cat([table, -table])
    expected = torch.stack([table[(codes & 15).int()], table[(codes >> 4).int()]], dim=1)
    assert torch.equal(values, expected.flatten())


def test_a_kernel_that_is_given_a_cpu_tensor_reads_out_of_bounds() -> None:
    arguments = from_dlpack(torch.ones(64)), from_dlpack(torch.zeros(64, device="cuda"))
    compiled = cute.compile(copy, *arguments)
    with pytest.raises(OutOfBounds):
        compiled(*arguments)


def test_adopted_memory_is_written_where_the_host_reads_it() -> None:
    host = torch.zeros(64)
    copy(from_dlpack(torch.ones(64, device="cuda")), from_dlpack(standin.adopt(host)))
    assert host.tolist() == [1.0] * 64
