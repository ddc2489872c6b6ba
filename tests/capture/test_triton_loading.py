"""Kernels of Triton that are translated as they are loaded, as far as that goes without a GPU."""

# mypy: disable-error-code="no-untyped-def, name-defined"

import subprocess
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

triton = pytest.importorskip("triton")
tl = pytest.importorskip("triton.language")

from nvfp4.capture.patches import Patches  # noqa: E402
from nvfp4.capture.triton.loading import start_loading  # noqa: E402
from nvfp4.retarget.errors import DriverError  # noqa: E402
from nvfp4.retarget.rewrite import rewrite  # noqa: E402


@triton.jit
def narrow_kernel(x, y):
    i = tl.arange(0, 32)
    halves = tl.inline_asm_elementwise(
        "{ .reg .b8 a, b, c, d; mov.b32 {a, b, c, d}, $1; cvt.rn.f16x2.e2m1x2 $0, a; }",
        "=r,r",
        [tl.load(x + i)],
        dtype=tl.int32,
        is_pure=True,
        pack=1,
    )
    tl.store(y + i, halves)


class FakeDriver:
    """A Hopper that keeps what it is given. fails: what loading raises."""

    fails: Exception | None = None

    def __init__(self) -> None:
        self.loaded: list[bytes] = []
        self.utils = SimpleNamespace(
            get_device_properties=lambda device: {"max_shared_mem": 232448},
            load_binary=self._load,
            unload_module=lambda module: None,
        )

    def get_current_target(self) -> Any:
        """As the patched class says."""
        from triton.backends.nvidia.driver import CudaDriver

        return CudaDriver.get_current_target(None)

    def launcher_cls(self, source: Any, metadata: Any) -> Any:
        return lambda *_: None

    def get_current_device(self) -> int:
        return 0

    def _load(self, name: str, binary: bytes, shared: int, device: int) -> tuple[Any, ...]:
        if self.fails:
            raise self.fails
        self.loaded.append(binary)
        return (1, 2, 16, 0, 1024)


@pytest.fixture
def driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeDriver]:
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    fake = FakeDriver()
    patches = Patches()
    patches.set(triton.runtime.driver, "_active", fake)
    yield fake
    patches.undo()


def compiled(fake: FakeDriver) -> Any:
    source = triton.compiler.ASTSource(narrow_kernel, signature={"x": "*i32", "y": "*i32"})
    kernel = triton.compile(source, target=fake.get_current_target())
    kernel._init_handles()
    return kernel


def no_reason(ptx: str) -> None:
    raise AssertionError("nothing is to be explained")


def test_the_driver_gets_the_rewritten_text(driver: FakeDriver, tmp_path: Path) -> None:
    stop = start_loading(lambda ptx: rewrite(ptx, "sm_90a").ptx, no_reason, "sm_100a")
    try:
        kernel = compiled(driver)
    finally:
        stop()
    (text,) = driver.loaded
    assert ".target sm_90a" in text.decode()
    assert "cvt.rn.f16x2.e2m1x2" in kernel.asm["ptx"]
    assert text.endswith(b"\0")
    (tmp_path / "k.ptx").write_bytes(text[:-1])
    from triton.backends.nvidia import compiler

    tool = compiler.get_ptxas(90)
    path = getattr(tool, "path", None) or tool[0]
    subprocess.run([path, "-arch=sm_90a", "k.ptx", "-o", "k.cubin"], cwd=tmp_path, check=True)


def test_what_the_driver_does_not_take_is_explained(
    driver: FakeDriver, request: pytest.FixtureRequest
) -> None:
    driver.fails = RuntimeError("Triton Error [CUDA]: a PTX JIT compilation failed")

    def explain(ptx: str) -> None:
        raise DriverError("the driver takes no such PTX: line 3; error: no such thing")

    request.addfinalizer(start_loading(lambda ptx: "translated", explain, "sm_100a"))
    with pytest.raises(DriverError, match="no such thing"):
        compiled(driver)


def test_afterwards_nothing_is_translated(driver: FakeDriver) -> None:
    from triton.backends.compiler import GPUTarget

    start_loading(no_reason, no_reason, "sm_100a")()  # type: ignore[arg-type]
    driver.get_current_target = lambda: GPUTarget("cuda", 100, 32)  # type: ignore[method-assign]
    compiled(driver)
    assert driver.loaded[0].startswith(b"\x7fELF")
