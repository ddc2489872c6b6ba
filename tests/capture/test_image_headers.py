"""Headers of the contest's machines: where CUTLASS's are, and what is said of missing ones."""

import importlib.util
import re
from importlib.machinery import ModuleSpec
from pathlib import Path

import pytest
import torch
from kept import invoke

from nvfp4.capture.cuda import image_headers
from nvfp4.capture.cuda.architectures import Image
from nvfp4.capture.cuda.build import Request, Source, build
from nvfp4.capture.cuda.compilers import CompileError
from nvfp4.records.launch_errors import NotInstalled


def checkout(folder: Path, minor: int = 2) -> Path:
    """The headers of CUTLASS 4, in small; returns its root."""
    for name in ("include/cutlass/cutlass.h", "include/cutlass/version.h"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(f"#define CUTLASS_MAJOR 4\n#define CUTLASS_MINOR {minor}\n")
    (folder / "tools/util/include").mkdir(parents=True)
    return folder


@pytest.fixture(autouse=True)
def nowhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """No CUTLASS but what a test puts there."""
    for name in ("CUTLASS_PATH", "CPLUS_INCLUDE_PATH", "CPATH"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)


def both(root: Path) -> tuple[Path, Path]:
    return root / "include", root / "tools/util/include"


def test_cutlass_is_where_its_variable_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = checkout(tmp_path / "mine")
    monkeypatch.setenv("CUTLASS_PATH", str(root))
    assert image_headers.cutlass_folders() == both(root)
    first = image_headers.identity()
    (root / "include/cutlass/version.h").write_text("#define CUTLASS_MAJOR  5\n")
    assert image_headers.identity() != first


def test_cutlass_is_where_compilers_look(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = checkout(tmp_path)
    monkeypatch.setenv("CPLUS_INCLUDE_PATH", f"/nothing:{root / 'include'}")
    assert image_headers.cutlass_folders() == both(root)


def test_cutlass_is_in_its_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = checkout(tmp_path / "source")
    package = ModuleSpec("cutlass_library", None, is_package=True)
    package.submodule_search_locations = [str(tmp_path)]
    monkeypatch.setattr(importlib.util, "find_spec", {"cutlass_library": package}.get)
    assert image_headers.cutlass_folders() == both(root)


def refused(error: str, include: Path) -> NotInstalled | None:
    """What is raised for a compiler's message, with this folder for the toolkit's headers."""
    try:
        image_headers.refuse_if_missing(f"cuda.cu cannot be compiled:\n{error}", include)
    except NotInstalled as missing:
        return missing
    return None


NO_SUCH_FILE = "mine.py:3:10: fatal error: {}: No such file or directory"


@pytest.mark.parametrize(
    ("error", "family"),
    [
        *((name, "CUTLASS") for name in ("cutlass/cutlass.h", "cute/tensor.hpp")),
        *((name, "CCCL") for name in ("cub/cub.cuh", "cuda/std/array")),
        *((name, "toolkit") for name in ("cublas_v2.h", "curand_kernel.h", "mma.h")),
        ("format", "g\\+\\+ 13"),
        ('mine.py(3): error: cannot open source file "cute/tensor.hpp"', "CUTLASS"),
        ('mine.py(9): error: identifier "cublasCreate" is undefined', "toolkit"),
        ('mine.py(9): error: identifier "CUBLAS_COMPUTE_32F" is undefined', "toolkit"),
    ],
)
def test_a_header_of_the_image_that_is_missing_is_no_fault(
    tmp_path: Path, error: str, family: str
) -> None:
    said = str(refused(error if " " in error else NO_SUCH_FILE.format(error), tmp_path))
    assert re.match(rf".*a header of .*{family}.* is not on this machine", said, re.S)


@pytest.mark.parametrize(
    "error",
    [
        *map(NO_SUCH_FILE.format, ("mine.h", "helper_cuda.h", "cuda_utils.h")),
        *map(NO_SUCH_FILE.format, ("cuda/kernels.cuh", "torch/nothing.h")),
        'mine.py(9): error: identifier "cutlas" is undefined',
    ],
)
def test_a_header_that_nobody_knows_is_the_submissions_fault(tmp_path: Path, error: str) -> None:
    assert refused(error, tmp_path) is None


OF_CUTLASS = [
    'mine.py(9): error: namespace "cutlass" has no member "float_e1m0_t"',
    'mine.py(9): error: namespace "cute::SM100" has no member "copy"',
    "mine.py:9:3: error: \u2018float_e1m0_t\u2019 is not a member of \u2018cutlass\u2019",
]


@pytest.mark.parametrize("error", OF_CUTLASS)
@pytest.mark.parametrize(("minor", "missing"), [(2, True), (5, True), (6, False), (None, False)])
def test_a_name_that_a_later_cutlass_may_have_is_no_fault(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, minor: int | None, missing: bool, error: str
) -> None:
    if minor is not None:
        monkeypatch.setenv("CUTLASS_PATH", str(checkout(tmp_path, minor)))
    found = refused(error, tmp_path)
    assert (found is not None) == missing
    if found is not None:
        assert f"CUTLASS 4.{minor} on this machine" in str(found)
        assert "CUTLASS_PATH" in (found.hint or "")


def test_a_library_that_the_toolkit_has_is_not_missing(tmp_path: Path) -> None:
    (tmp_path / "cublas_v2.h").touch()
    assert not refused('mine.py(9): error: identifier "cublasCreat" is undefined', tmp_path)


SOURCE = "#include <torch/types.h>\n#include <cutlass/cutlass.h>\n__global__ void k() {}\n"


def asked(name: str, text: str) -> Request:
    return Request("m", (Source(name, text),), (Image("compute_100a", "sm_100a"),), (10, 0))


@pytest.mark.usefixtures("toolchain")
@pytest.mark.parametrize(("name", "where"), [("of.cpp", "1"), ("of.cu", "defined(__CUDA_ARCH__)")])
def test_a_header_that_has_changed_is_read_again(tmp_path: Path, name: str, where: str) -> None:
    header = tmp_path / "of \u00fc.h"
    request = asked(name, f'#if {where}\n#include "{header}"\n#endif\nint f() {{ return 1; }}')
    for wrong in ("No such file", '"?N.? (was not declared|is undefined)'):
        with pytest.raises(CompileError, match=wrong):
            build(request)
        header.write_text("inline int g() { return N; }")
    header.write_text("")
    library = build(request).library
    assert build(request).library == library
    header.write_text("#define N")
    assert build(request).library != library


@pytest.mark.usefixtures("toolchain")
def test_a_build_is_tried_again_once_cutlass_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("nvfp4.capture.cuda.compilers.cache_folder", lambda: tmp_path / "cache")
    monkeypatch.setattr(image_headers, "_cutlass_roots", lambda: [tmp_path / "cutlass"])
    request = asked("needs.cu", SOURCE)
    with pytest.raises(NotInstalled, match=r"needs\.cu:2: cutlass/cutlass\.h.*CUTLASS") as said:
        build(request)
    assert "nvidia-cutlass" in (said.value.hint or "")
    checkout(tmp_path / "cutlass")
    assert build(request).headers == "slim"


SUBMISSION = """
from torch.utils.cpp_extension import load_inline

load_inline("m", "void f();", ["#include <cutlass/{name}>\\nvoid f() {{}}"], functions=["f"])
custom_kernel = len
"""


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a real CUDA device")
def test_without_a_header_of_the_image_nothing_is_judged(tmp_path: Path) -> None:
    submission = tmp_path / "mine.py"
    submission.write_text(SUBMISSION.format(name="no_such_header.h"))
    ended = invoke("check", str(submission))
    assert ended.exit_code == 3, ended.output
    assert "cutlass/no_such_header.h, a header of CUTLASS, is not on this machine" in ended.output
    assert "CUTLASS_PATH" in ended.output
