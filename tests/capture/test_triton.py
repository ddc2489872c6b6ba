"""What is captured of Triton, without the emulator."""

# mypy: disable-error-code="no-untyped-def, name-defined"

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

triton = pytest.importorskip("triton")
tl = pytest.importorskip("triton.language")

from nvfp4.capture import triton as capture  # noqa: E402
from nvfp4.capture.device import device_for  # noqa: E402
from nvfp4.capture.triton import SESSION, hooks, loading  # noqa: E402
from nvfp4.capture.triton.driver import of_kernel  # noqa: E402
from nvfp4.records.launch import Launch  # noqa: E402
from nvfp4.records.launch_errors import LaunchRefused, UnsupportedCall  # noqa: E402
from nvfp4.records.tensormap import DataType, Swizzle, TensorMap  # noqa: E402


@pytest.fixture(scope="module", autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRITON_CACHE_DIR", str(tmp_path_factory.mktemp("triton")))
        yield


@pytest.fixture
def launches() -> Iterator[list[Launch]]:
    """Launches captured while the test runs; without a stand-in kernels take CPU tensors."""
    caught: list[Launch] = []
    stop = capture.start(caught.append)
    yield caught
    stop()


@triton.jit
def scale_kernel(x, y, n, factor, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + i, tl.load(x + i, mask=i < n) * factor, mask=i < n)


def tensors(count: int = 2) -> list[torch.Tensor]:
    return [torch.zeros(512) for _ in range(count)]


def words(launch: Launch) -> list[bytes]:
    return [bytes(each) for each in launch.parameters]


def test_a_launch_has_grid_block_parameters_and_ptx(launches: list[Launch]) -> None:
    x, y = tensors()
    scale_kernel[lambda meta: (triton.cdiv(500, meta["BLOCK"]), 2)](
        x, y, 500, 1.5, BLOCK=128, num_warps=2
    )
    (launch,) = launches
    assert (launch.kernel, launch.grid, launch.block) == ("scale_kernel", (4, 2, 1), (64, 1, 1))
    pointers = [each.data_ptr().to_bytes(8, "little") for each in (x, y)]
    rest = [(500).to_bytes(4, "little"), np.float32(1.5).tobytes()]
    assert words(launch)[:4] == pointers + rest
    assert set(words(launch)[4:]) == {bytes(8)}, "scratch memory, which this kernel does not need"
    assert launch.cluster == (1, 1, 1)
    assert not launch.trial
    assert not launch.notes
    assert ".target sm_100a" in launch.ptx
    assert Path(__file__).name in launch.ptx
    assert ".loc" in launch.ptx


def test_every_way_to_launch_is_caught(launches: list[Launch]) -> None:
    x, y = tensors()
    scale_kernel[(4,)](x, y, 500, 2.0, BLOCK=128)
    scale_kernel.run(x, y, 500, 2.0, BLOCK=128, grid=(4,), warmup=False)
    compiled = scale_kernel.warmup(x, y, 500, 2.0, BLOCK=128, grid=(4,))
    assert len(launches) == 2
    compiled[(4, 1, 1)](x, y, 500, 2.0, 128)
    assert len({(launch.ptx, *words(launch)) for launch in launches}) == 1
    assert len(launches) == 3
    scale_kernel[(0,)](x, y, 500, 2.0, BLOCK=128)
    assert len(launches) == 3, "an empty grid launches nothing"
    assert compiled.n_regs > 0
    assert of_kernel(compiled.kernel) == (compiled.n_regs, compiled.n_spills)


def test_arguments_equal_to_one_are_constants_and_tuples_are_flat(launches: list[Launch]) -> None:
    @triton.jit
    def kernel(pair, z, n, BLOCK: tl.constexpr):
        i = tl.arange(0, BLOCK) * n
        tl.store(z + i, tl.load(pair[0] + i) + tl.load(pair[1][0] + i) * pair[1][1])

    x, y, z = tensors(3)
    kernel[(1,)]((x, (y, 3.0)), z, 1, BLOCK=64)
    pointers = [each.to_bytes(8, "little") for each in (x.data_ptr(), y.data_ptr())]
    third = [np.float32(3).tobytes(), z.data_ptr().to_bytes(8, "little")]
    assert words(launches[0])[:4] == pointers + third


def test_an_architecture_has_its_own_kernels(
    launches: list[Launch], monkeypatch: pytest.MonkeyPatch
) -> None:
    x, y = tensors()
    scale_kernel[(1,)](x, y, 7, 1.0, BLOCK=64)
    compiled = scale_kernel.warmup(x, y, 7, 1.0, BLOCK=64, grid=(1,))
    with pytest.raises(RuntimeError, match="already"):
        capture.start(launches.append)
    monkeypatch.setattr(SESSION, "_device", device_for("sm_90a"))
    scale_kernel[(1,)](x, y, 7, 1.0, BLOCK=64)
    assert ".target sm_90a" in launches[-1].ptx
    with pytest.raises(LaunchRefused, match="sm_100a"):
        compiled[(1, 1, 1)](x, y, 7, 1.0, 64)


def test_a_kernel_outlives_its_emulation_but_cannot_be_launched() -> None:
    x, y = tensors()
    stop = capture.start(lambda launch: None)
    compiled = scale_kernel.warmup(x, y, 9, 1.0, BLOCK=64, grid=(1,))
    compiled._init_handles()
    launcher, function = compiled.run, compiled.function
    stop()
    with pytest.raises(UnsupportedCall, match="has ended"):
        launcher(1, 1, 1, 0, function, None, None, None, None, x, y, 9, 1.0, 64)


def test_pointers_are_checked_as_on_a_gpu(launches: list[Launch]) -> None:
    (x,) = tensors(1)
    with pytest.raises(ValueError, match=r"cannot be accessed from Triton \(cpu tensor\?\)"):
        scale_kernel[(1,)](x, torch.empty(9, device="meta"), 9, 1.0, BLOCK=64)


def test_what_the_device_has_not_got_is_out_of_resources(launches: list[Launch]) -> None:
    @triton.jit
    def wide(x, y, SIZE: tl.constexpr):
        i = tl.arange(0, SIZE)[:, None] * SIZE + tl.arange(0, SIZE)[None, :]
        tl.store(y + i, tl.trans(tl.load(x + i)))

    x, y = tensors()
    with pytest.raises(triton.OutOfResources, match=r"threads, Required: 2048.* 1024"):
        scale_kernel[(1,)](x, y, 9, 1.0, BLOCK=64, num_warps=64)
    with pytest.raises(triton.OutOfResources, match=r"shared memory, .*limit: 232448"):
        wide[(1,)](x, y, 512, num_warps=32)
    assert not launches


def test_a_compile_error_is_triton_s_own(launches: list[Launch]) -> None:
    @triton.jit
    def wrong(x):
        tl.store(x + tl.arange(0, 3), 1.0)

    with pytest.raises(triton.CompilationError, match="power of 2"):
        wrong[(1,)](tensors()[0])


def test_hooks_are_called_around_a_launch(launches: list[Launch]) -> None:
    seen: list[tuple[str, int]] = []

    def enter(metadata: Any) -> None:
        seen.append((metadata.get()["name"], len(launches)))

    def leave(metadata: Any) -> None:
        seen.append(("left", len(launches)))

    knobs = triton.knobs.runtime
    knobs.launch_enter_hook.add(enter)
    knobs.launch_exit_hook.add(leave)
    try:
        scale_kernel[(1,)](*tensors(), 9, 1.0, BLOCK=64)
    finally:
        knobs.launch_enter_hook.remove(enter)
        knobs.launch_exit_hook.remove(leave)
    assert seen == [("scale_kernel", 0), ("left", 1)]


def tuned(**options: Any) -> Any:
    configs = [triton.Config({"BLOCK": 64}, num_warps=w) for w in (64, 2, 4)]
    return triton.autotune(configs=configs, key=["n"], **options)(scale_kernel)


def test_the_first_configuration_that_launches_is_used(launches: list[Launch]) -> None:
    x, y = tensors()
    zeroed: list[str] = []
    kernel = tuned(pre_hook=lambda args, reset_only=False: zeroed.append("reset"))
    for _ in range(2):
        kernel[lambda meta: (triton.cdiv(100, meta["BLOCK"]),)](x, y, 100, 1.0)
    assert [launch.trial for launch in launches] == [True, False, False]
    assert {launch.block for launch in launches} == {(64, 1, 1)}
    (note,) = launches[-1].notes
    assert note.code == "autotune"
    assert "first of its configurations that works (BLOCK=64, num_warps=2" in note.message
    assert note.file == __file__
    assert not launches[0].notes
    assert zeroed


def test_a_configuration_that_nothing_was_chosen_from_has_no_note(launches: list[Launch]) -> None:
    def last(configs: list[Any], *_: Any, **__: Any) -> list[Any]:
        return configs[2:]

    tuned(prune_configs_by={"early_config_prune": last})[(1,)](*tensors(), 60, 1.0)
    assert not launches[-1].trial
    assert not any(launch.notes for launch in launches)


def test_a_benchmark_of_the_user_s_is_not_run(launches: list[Launch]) -> None:
    bench = triton.testing.do_bench
    tuned(do_bench=lambda call, quantiles: bench(call))[(1,)](*tensors(), 60, 1.0)
    assert len(launches) == 2
    with pytest.raises(UnsupportedCall, match="do_bench measures time"):
        triton.testing.do_bench(lambda: None)


def test_what_a_trial_raises_surfaces(
    launches: list[Launch], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(SESSION, "_run", lambda launch: 1 // 0)
    with pytest.raises(ZeroDivisionError):
        tuned()[(1,)](*tensors(), 60, 1.0)


def test_a_tensor_descriptor_becomes_a_tensor_map(launches: list[Launch]) -> None:
    descriptors = pytest.importorskip("triton.tools.tensor_descriptor")

    @triton.jit
    def kernel(desc, y, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
        tile = desc.load([tl.program_id(0) * ROWS, 0])
        tl.store(y + tl.arange(0, ROWS), tl.sum(tile, axis=1))

    x, y = torch.zeros(48, 96), torch.zeros(48)
    kernel[(3,)](descriptors.TensorDescriptor.from_tensor(x[:, :64], [16, 32]), y, 16, 32)
    tensor_map = TensorMap.unpack(words(launches[0])[0])
    assert tensor_map.data_type is DataType.FLOAT32
    assert tensor_map.address == x.data_ptr()
    assert tensor_map.shape == (64, 48)
    assert tensor_map.strides_bytes == (96 * 4,)
    assert tensor_map.box == (32, 16)
    assert tensor_map.swizzle is Swizzle.BYTES_128
    strides = [(48, 4), (64, 4), (96, 8), (1, 8)]
    rest = words(launches[0])[1:5]
    assert sorted(rest) == sorted(value.to_bytes(size, "little") for value, size in strides)


def test_scratch_memory_comes_from_the_user_s_allocator(launches: list[Launch]) -> None:
    @triton.jit
    def kernel(x, y, ROWS: tl.constexpr):
        desc = tl.make_tensor_descriptor(x, [48, 32], [32, 1], [ROWS, 32])
        tl.store(y + tl.arange(0, ROWS), tl.sum(desc.load([0, 0]), axis=1))

    x, y = torch.zeros(48, 32), torch.zeros(48)
    with pytest.raises(RuntimeError, match="set_allocator"):
        kernel[(3,)](x, y, 16)
    given: list[torch.Tensor] = []

    def allocate(size: int, alignment: int, stream: int | None) -> torch.Tensor:
        given.append(torch.empty(size, dtype=torch.int8))
        return given[-1]

    triton.set_allocator(allocate)
    kernel[(3,)](x, y, 16)
    assert given[0].numel() % (3 * 128) == 0
    assert words(launches[0])[-2] == given[0].data_ptr().to_bytes(8, "little")


def test_cached_ptx_names_the_files_of_this_process_and_its_columns_count_from_0() -> None:
    ptx = f'\t.file\t1 "/gone/before/{Path(__file__).name}"\n\t.file 2 "/gone/nobody.py"\n'
    text = loading.corrected(ptx, None)
    assert f'\t.file\t1 "{__file__}"\n' in text
    assert '"/gone/nobody.py"' in text
    ptx = "\t.loc 1 7 13, function_name $L__info, inlined_at 1 44 1 // a.py:7:13\n\t.loc 1 5 0\n"
    text = loading.corrected(ptx, None)
    assert text.startswith("\t.loc 1 7 12, function_name $L__info, inlined_at 1 44 0 //")
    assert text.endswith(".loc 1 5 0\n")


def test_an_older_version_is_refused_when_it_is_used(
    monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    monkeypatch.setattr(triton, "__version__", "3.2.0")
    request.getfixturevalue("launches")
    with pytest.raises(hooks.UnsupportedVersion, match=r"Triton 3\.2\.0 .* older than 3\.5"):
        scale_kernel[(1,)](*tensors(), 9, 1.0, BLOCK=64)


def test_stopping_leaves_triton_as_it_was() -> None:
    from triton.runtime.autotuner import Autotuner

    before = (vars(Autotuner)["run"], triton.testing.do_bench)
    capture.start(lambda launch: None)()
    assert (vars(Autotuner)["run"], triton.testing.do_bench) == before
