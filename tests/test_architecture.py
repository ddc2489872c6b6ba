"""A file in CUDA C++ with and without the flag for sm_100a, compiled as on the contest's bot."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from bot import root
from click.testing import CliRunner

from nvfp4.capture.cuda.toolchain import Toolchain
from nvfp4.cli.main import main

FLAG = '"-gencode=arch=compute_100a,code=sm_100a"'


def judged(folder: Path, source: str, *arguments: str) -> tuple[dict[str, Any], str]:
    path, verdict = folder / "mine.py", folder / "verdict.json"
    path.write_text(source)
    command, *options = arguments
    done = CliRunner().invoke(main, [command, str(path), *options, "--output", str(verdict)])
    return json.loads(verdict.read_text()), done.output


def source_of(name: str, flag: bool) -> str:
    source = (root / name).read_text()
    assert FLAG in source
    return source if flag else source.replace(FLAG, '"-O3"')


@pytest.mark.usefixtures("toolchain")
def test_a_flag_decides_the_prediction_and_its_absence_is_found(tmp_path: Path) -> None:
    us, found = {}, {}
    for flag in (True, False):
        source = source_of("tests/field/cuda/intrinsics.py", flag)
        asked = ("bench", "--shape", "512,2048,1", "--strict")
        verdict, text = judged(tmp_path, source, *asked)
        assert verdict["passed"], "it is no misuse: --strict has nothing against it"
        (case,) = verdict["benchmarks"]
        us[flag] = case["predicted"]["us"]
        found[flag] = [each for each in case["findings"] if each["code"] == "software_conversion"]
        assert ("software_conversion" in text) is not flag
    assert found[True] == []
    (finding,) = found[False]
    lines = source.split("\n")
    assert "__nv_cvt_fp4x2_to_halfraw2" in lines[finding["line"] - 1]
    assert "__nv_cvt_fp4x2_to_halfraw2" not in "".join(lines[: finding["line"] - 1])
    assert FLAG.strip('"') in finding["hint"]
    said = re.search(r": ([\d.]+) us instead of ([\d.]+), predicted on a B200$", finding["hint"])
    assert said is not None
    assert float(said[1]) == pytest.approx(us[True], rel=0.05)
    assert float(said[2]) == pytest.approx(us[False], rel=0.01)
    assert us[False] > 1.3 * us[True]


@pytest.mark.usefixtures("toolchain")
def test_what_sm_100_lacks_is_refused_with_the_flag_that_helps(tmp_path: Path) -> None:
    source = source_of("ladder/cuda/05_ptx_decode.py", flag=False)
    verdict, _ = judged(tmp_path, source, "check")
    said = verdict["mistake"]["message"]
    (error,) = re.findall(r"^mine\.py:(\d+): error: .*e2m1x2' not supported on .*$", said, re.M)
    assert "asm(" in source[: source.index(source.split("\n")[int(error)])]
    assert said.endswith(f"extra_cuda_cflags=[{FLAG}]")


@pytest.mark.usefixtures("toolchain")
def test_an_image_that_the_gpu_would_not_load_is_compiled_for_its_errors(tmp_path: Path) -> None:
    both = f'{FLAG}, "-gencode=arch=compute_90,code=sm_90"'
    source = source_of("ladder/cuda/05_ptx_decode.py", flag=True).replace(FLAG, both)
    verdict, _ = judged(tmp_path, source, "check")
    assert "not supported on .target 'sm_90'" in verdict["mistake"]["message"]


@pytest.mark.parametrize(
    ("options", "target"),
    [
        ((), "sm_75"),  # NVRTC's own
        (("--gpu-architecture=sm_100",), "sm_100"),  # torch.cuda._compile_kernel
        (("-arch=compute_100a",), "sm_100a"),
    ],
)
def test_nvrtc_compiles_for_what_its_options_say(
    toolchain: Toolchain, tmp_path: Path, options: tuple[str, ...], target: str
) -> None:
    from nvfp4.capture.cuda.nvrtc import Program, compile_program

    program = Program('extern "C" __global__ void k() {}', "k", options=options)
    assert f".target {target}\n" in compile_program(program, tmp_path).ptx
