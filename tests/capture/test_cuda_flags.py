"""Which compiler flags of a submission are kept."""

import pytest

from nvfp4.capture.cuda.flags import kept, linked, register_limit
from nvfp4.capture.device import runs_on


@pytest.mark.parametrize(
    "dropped",
    [
        "-gencode=arch=compute_90a,code=sm_90a",
        "-gencode arch=compute_100a,code=sm_100a",
        "-arch=sm_100a",
        "-arch sm_90",
        "--gpu-architecture=sm_100",
        "-Xptxas -v",
        "-Xptxas=-v,-dlcm=ca",
        "--ptxas-options=-v",
        "-O3",
        "-lineinfo",
        "-rdc=true",
        "--threads 8",
        "-t4",
    ],
)
def test_what_does_not_change_the_code_is_dropped(dropped: str) -> None:
    assert kept([dropped, "--use_fast_math"]) == ["--use_fast_math"]
    assert kept([*dropped.split(), "--use_fast_math"]) == ["--use_fast_math"]


def test_what_matters_is_kept_with_its_value() -> None:
    flags = [
        "--use_fast_math",
        "-DBLOCK=64",
        "-std=c++20",
        "-Xcompiler",
        "-Wall",
        "-maxrregcount=64",
    ]
    assert kept(flags) == flags
    assert kept("-DA=1 -DB='two words'") == ["-DA=1", "-DB=two words"]
    assert kept(None) == []


@pytest.mark.parametrize(
    ("flags", "limit"),
    [
        (["-maxrregcount=64"], ["-maxrregcount=64"]),
        (["--maxrregcount", "32"], ["-maxrregcount=32"]),
        (["-O3"], []),
    ],
)
def test_the_limit_of_registers_goes_to_ptxas(flags: list[str], limit: list[str]) -> None:
    assert register_limit(flags) == limit


def test_libraries_of_cuda_are_not_linked() -> None:
    assert linked(["-lcuda", "-lcublasLt", "-L/opt/lib", "-lz", "-lcudart"]) == [
        "-L/opt/lib",
        "-lz",
    ]


@pytest.mark.parametrize(
    ("code", "b200", "h100"),
    [
        ("sm_100a", True, False),
        ("sm_100f", True, False),
        ("sm_100", True, False),
        ("sm_103", False, False),
        ("compute_100a", True, False),
        ("compute_100", True, False),
        ("sm_90", False, True),
        ("sm_90a", False, True),
        ("compute_90", True, True),
        ("compute_90a", False, True),
        ("sm_120a", False, False),
        ("compute_120", False, False),
    ],
)
def test_what_a_device_takes(code: str, b200: bool, h100: bool) -> None:
    assert (runs_on(code, (10, 0)), runs_on(code, (9, 0))) == (b200, h100)
