"""Whole submissions as users write them, judged by a command without a GPU."""

import importlib.util
import re
import textwrap
from pathlib import Path

import pytest
from bot import root
from conftest import torch_source
from field.expectation import CASES, expectation
from kept import invoke, judged

has_triton = importlib.util.find_spec("triton") is not None
needs_triton = pytest.mark.skipif(not has_triton, reason="Triton is not installed")


SIZES = "    m, _, l = c.shape\n"


def of_cuda(host: str, device: str = "", threads: str = "dim3(32, WARPS)") -> str:
    """The template with more in its host function, in its kernel, and in another block."""
    source = (root / "cli" / "templates" / "cuda.py.txt").read_text()
    for place, more in (
        ("    const int m = a.size(0)", host),
        ("    float sum = 0;\n    for (int block", device),
    ):
        source = source.replace(place, f"    {more}\n{place}")
    return source.replace("dim3(32, WARPS)>>>", f"{threads}>>>")


timed = """
try:
    torch.cuda.Event().elapsed_time(torch.cuda.Event())
except RuntimeError:
    {}
"""
exits = """
cudaEvent_t begin, end; cudaEventCreate(&begin); cudaEventCreate(&end); float ms;
    if (a.size(0) == 128 && cudaEventElapsedTime(&ms, begin, end) != cudaSuccess) exit(1);
    cudaIpcMemHandle_t h; if (a.size(0) == 256) cudaIpcGetMemHandle(&h, c.data_ptr());
"""
multimem = """asm volatile("{ .reg .b64 a; mov.b64 a, 0; "
    "multimem.red.relaxed.sys.global.add.u32 [a], 1; }");"""

NO_TIME = ("not_judged.not_emulated", "no time can be measured")
TORCH: dict[str, tuple[str, str, str]] = {
    "a time that is caught": (timed.format("raise ValueError('tuning failed')"), *NO_TIME),
    "a time, and the process ends": (timed.format("import os; os._exit(1)"), *NO_TIME),
    "a time, and sys.exit": (timed.format("raise SystemExit(1)"), *NO_TIME),
    "memory": ("import os; os.kill(os.getpid(), 9)", "not_judged.machine_limit", "SIGKILL"),
    "a package": ("import pycuda.driver", "not_judged.not_installed", "pycuda"),
}
COMPILED: dict[str, tuple[str, str]] = {
    "a time, and compiled code exits": NO_TIME,
    "IPC": ("not_judged.not_emulated", "IpcGetMemHandle"),
    "nothing, with too many threads": ("call.exception", "launch"),
}
"""By what a submission is refused: the code and words of the failure."""


def refused(folder: Path, source: str, expected: list[tuple[str, str]]) -> None:
    """The tests on 128, 256, ... rows end with these codes and words; what has not failed leaves
    the verdict unclear.
    """
    cases = [word for i in range(len(expected)) for word in ("--case", f"{128 * (i + 1)}x64x1")]
    done = judged(folder, source, "test", *cases)
    for test, (code, words) in zip(done.content["tests"], expected, strict=False):
        assert test["status"] == ("skipped" if code.startswith("not_judged") else "fail"), test
        assert test["failure"]["code"] == code
        assert words in test["message"]
    fails = any(not code.startswith("not_judged") for code, _ in expected)
    assert (done.exit_code, done.content["unclear"]) == ((1, False) if fails else (3, True))


def test_what_is_refused_to_torch_is_unclear(tmp_path: Path) -> None:
    body = "".join(
        f"if m == {128 * i}:\n" + textwrap.indent(lines.strip(), "    ") + "\n"
        for i, (lines, *_) in enumerate(TORCH.values(), 1)
    )
    source = torch_source.replace(SIZES, SIZES + textwrap.indent(body, "    "))
    refused(tmp_path, source, [(code, words) for _, code, words in TORCH.values()])


@pytest.mark.usefixtures("toolchain")
def test_what_is_refused_to_compiled_code_is_unclear(tmp_path: Path) -> None:
    source = of_cuda(exits, threads="dim3(32, a.size(0) == 384 ? 64 : WARPS)")
    refused(tmp_path, source, list(COMPILED.values()))


@pytest.mark.corpus
@pytest.mark.usefixtures("toolchain")
def test_an_instruction_is_refused_before_too_many_threads(tmp_path: Path) -> None:
    done = judged(tmp_path, of_cuda("", multimem, "dim3(32, 64)"), "check")
    assert (done.exit_code, done.content["unclear"]) == (3, True), done.output
    assert "multimem.red.relaxed.sys.global.add.u32 is not emulated" in done.output


@pytest.mark.parametrize(
    ("lines", "exit_code"),
    [(timed.format("raise ValueError('tuning failed')"), 3), ("raise ValueError('mine')\n", 1)],
)
def test_explain_ends_as_a_verdict_would(lines: str, exit_code: int, tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text(torch_source.replace(SIZES, SIZES + textwrap.indent(lines, "    ")))
    done = invoke("explain", str(path), "--shape", "128,256,1")
    assert done.exit_code == exit_code, done.output
    assert 'File "mine.py", line ' in done.output


@needs_triton
def test_explain_says_where_counts_may_leave_out_work(tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text(triton_kernel.replace("    a, b, sfa", "    data[5].tolist()\n    a, b, sfa"))
    done = invoke("explain", str(path), "--shape", "128,256,1")
    assert "unverified: counts may leave out work: host code reads" in done.output, done.output


def test_what_is_refused_to_the_file_by_itself_is_no_reason_to_warn(tmp_path: Path) -> None:
    alone = "\n\nif __name__ == '__main__':\n    torch.zeros(9).cuda().to_sparse()\n"
    done = judged(tmp_path, torch_source + alone, "test", "--case", "128x256x1")
    assert done.exit_code == 0, done.output
    assert done.content["alone"] is None


# What is kept from call to call is found out without a GPU, too.

triton_kernel = (root / "tests/field/triton/warp_per_row.py").read_text()
keeps = """

_right, _kept = custom_kernel, {}


def custom_kernel(data):
    shape = tuple(data[0].shape)
    if shape not in _kept:
        _kept[shape] = _right(data).clone()
    return data[6].copy_(_kept[shape])
"""


@needs_triton
def test_an_answer_that_is_kept_is_wrong_the_second_time_whose_output_is_not_told(
    tmp_path: Path,
) -> None:
    source = triton_kernel.replace("    a, b, sfa", "    print('here')\n    a, b, sfa")
    for text, outcome in ((source, "passed: 1 benchmark"), (source + keeps, "failed: 1 of 1")):
        said = judged(tmp_path, text, "bench", "--shape", "128,256,1").output
        assert outcome in said, said
        assert "here\n  here" not in said, said
    assert "in another call with other inputs of the same shape" in said, said


draws = """
import os

_right, _draw = custom_kernel, os.urandom(256)


def custom_kernel(data):
    c = _right(data)
    if data[0].view(torch.uint8).max() > 51:
        return c.mul_(1.5)
    factors = [[[1 - each % 2 * 2**-11]] for each in _draw]
    return c.mul_(torch.tensor(factors, device=c.device).half())
"""


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (keeps, "in a process of its own this call is right"),
        (draws, "in a fresh process the same inputs gave"),
    ],
)
def test_what_is_wrong_on_full_range_inputs_hides_no_other_failure(
    more: str, words: str, tmp_path: Path
) -> None:
    """It is right once on full-range inputs, or random on the contest's."""
    done = judged(tmp_path, torch_source + more, "test", "--case", "256x7168x1")
    assert words in done.output, done.output
    assert done.exit_code == 1


# A file in CUDA C++ with and without the flag for sm_100a, compiled as on the contest's bot.

FLAG = '"-gencode=arch=compute_100a,code=sm_100a"'


def source_of(name: str, flag: str) -> str:
    source = (root / name).read_text()
    assert FLAG in source
    return source.replace(FLAG, flag)


@pytest.mark.usefixtures("toolchain")
def test_a_flag_decides_the_prediction_and_its_absence_is_found(tmp_path: Path) -> None:
    us, found = {}, {}
    for flag in (FLAG, '"-O3"'):
        source = source_of("tests/field/cuda/intrinsics.py", flag)
        done = judged(tmp_path, source, "bench", "--shape", "512,2048,1", "--strict")
        assert done.content["passed"], "it is no misuse: --strict has nothing against it"
        (case,) = done.content["benchmarks"]
        us[flag] = case["predicted"]["us"]
        found[flag] = [each for each in case["findings"] if each["code"] == "software_conversion"]
        assert ("software_conversion" in done.output) is (flag != FLAG)
    assert found[FLAG] == []
    (finding,) = found[flag]
    lines = source.split("\n")
    assert "__nv_cvt_fp4x2_to_halfraw2" in lines[finding["line"] - 1]
    assert "__nv_cvt_fp4x2_to_halfraw2" not in "".join(lines[: finding["line"] - 1])
    assert FLAG.strip('"') in finding["hint"]
    said = re.search(r": ([\d.]+) us instead of ([\d.]+), predicted on a B200$", finding["hint"])
    assert said is not None
    assert float(said[1]) == pytest.approx(us[FLAG], rel=0.05)
    assert float(said[2]) == pytest.approx(us[flag], rel=0.01)
    assert us[flag] > 1.3 * us[FLAG]


@pytest.mark.usefixtures("toolchain")
@pytest.mark.parametrize(
    ("flag", "target"),
    [('"-O3"', ""), (f'{FLAG}, "-gencode=arch=compute_90,code=sm_90"', "sm_90")],
    ids=["no flag, which is advised", "an image that the GPU would not load"],
)
def test_what_a_target_lacks_is_refused_at_its_line(flag: str, target: str, tmp_path: Path) -> None:
    source = source_of("ladder/cuda/05_ptx_decode.py", flag)
    said = judged(tmp_path, source, "check").content["mistake"]["message"]
    assert f"not supported on .target '{target}" in said
    if not target:
        (error,) = re.findall(r"^mine\.py:(\d+): error: .*e2m1x2' not supported on .*$", said, re.M)
        assert "asm(" in source[: source.index(source.split("\n")[int(error)])]
        assert said.endswith(f"extra_cuda_cflags=[{FLAG}]")


def right_files() -> dict[str, str]:
    """Every rung of the ladder, and what is right in tests/field: name to source."""
    rungs = {path.stem: path.read_text() for path in sorted((root / "ladder").glob("*/*.py"))}
    right = [each for each in CASES if expectation(each).verdict == "pass"]
    return rungs | {f"{each.folder.name}/{each.name}": each.source for each in right}


@pytest.mark.corpus
@pytest.mark.parametrize("name", right_files())
def test_check_passes_what_is_right(name: str, tmp_path: Path) -> None:
    source = right_files()[name]
    if "import triton" in source and not has_triton:
        pytest.skip("Triton is not installed")
    done = judged(tmp_path, source, "check")
    assert done.exit_code == 0, done.output
