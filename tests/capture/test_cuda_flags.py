"""Which compiler flags of a submission are kept."""

import pytest

from nvfp4.capture.cuda.flags import kept, linked, register_limit
from nvfp4.capture.device import runs_on


@pytest.mark.parametrize(
    "dropped",
    [
        *("-gencode=arch=compute_90a,code=sm_90a", "-gencode arch=compute_100a,code=sm_100a"),
        *("-arch=sm_100a", "-arch sm_90", "--gpu-architecture=sm_100", "-Xptxas -v"),
        *("-Xptxas=-v,-dlcm=ca", "--ptxas-options=-v", "-O3", "-lineinfo", "-rdc=true"),
        *("--threads 8", "-t4"),
    ],
)
def test_what_does_not_change_the_code_is_dropped(dropped: str) -> None:
    assert kept([dropped, "--use_fast_math"]) == ["--use_fast_math"]
    assert kept([*dropped.split(), "--use_fast_math"]) == ["--use_fast_math"]


def test_what_matters_is_kept_with_its_value() -> None:
    flags = ["--use_fast_math", "-DBLOCK=64", "-std=c++20"]
    flags += ["-Xcompiler", "-Wall", "-maxrregcount=64"]
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
    libraries = ["-lcuda", "-lcublasLt", "-L/opt/lib", "-lz", "-lcudart"]
    assert linked(libraries) == ["-L/opt/lib", "-lz"]


@pytest.mark.parametrize(
    ("code", "takers"),
    [
        *(("sm_100a", "100"), ("sm_100f", "100 103"), ("sm_100", "100 103")),
        *(("sm_103", "103"), ("compute_100a", "100"), ("compute_100", "100 103 120")),
        *(("sm_90", "90"), ("compute_90", "90 100 103 120"), ("compute_90a", "90")),
        *(("sm_80", "86"), ("sm_120a", "120"), ("native", "86 90 100 103 120")),
    ],
)
def test_which_devices_take_a_code(code: str, takers: str) -> None:
    numbers = (86, 90, 100, 103, 120)
    assert [n for n in numbers if runs_on(code, divmod(n, 10))] == list(map(int, takers.split()))
