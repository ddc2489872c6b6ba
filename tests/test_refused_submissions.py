"""Whole submissions that are refused something, which leaves the verdict unclear."""

import json
from pathlib import Path
from typing import Any

import pytest
from bot import root
from click.testing import CliRunner

from nvfp4.cli.main import main


def checked(folder: Path, source: str) -> tuple[int, dict[str, Any], str]:
    """Exit code, JSON object and text of `nvfp4 check`."""
    path, verdict = folder / "mine.py", folder / "verdict.json"
    path.write_text(source)
    done = CliRunner().invoke(main, ["check", str(path), "--output", str(verdict)])
    return done.exit_code, json.loads(verdict.read_text()), done.output


def of_torch(lines: str) -> str:
    source = (root / "nvfp4" / "selftest" / "honest" / "chunked_torch.py").read_text()
    body = "".join(f"    {line}\n" for line in lines.splitlines())
    return source.replace("    m, _, l = c.shape\n", f"    m, _, l = c.shape\n{body}")


timed = """
try:
    torch.cuda.Event().elapsed_time(torch.cuda.Event())
except RuntimeError:
    {}
"""


@pytest.mark.parametrize(
    ("lines", "code"),
    [
        (timed.format("raise ValueError('tuning failed')"), "not_judged.not_emulated"),
        (timed.format("import os; os._exit(1)"), "not_judged.not_emulated"),
        (timed.format("raise SystemExit(1)"), "not_judged.not_emulated"),
        ("import os; os.kill(os.getpid(), 9)", "not_judged.machine_limit"),
        ("import pycuda.driver", "not_judged.not_installed"),
    ],
)
def test_a_submission_that_is_refused_something_is_unclear(
    lines: str, code: str, tmp_path: Path
) -> None:
    exit_code, verdict, output = checked(tmp_path, of_torch(lines))
    assert exit_code == 3, output
    assert verdict["decided_by"]["failure"]["code"] == code


def of_cuda(host: str, device: str = "", threads: str = "dim3(32, WARPS)") -> str:
    """The template with more in its host function, in its kernel, and in another block."""
    source = (root / "cli" / "templates" / "cuda.py.txt").read_text()
    source = source.replace(
        "    const int m = a.size(0)", f"    {host}\n    const int m = a.size(0)"
    )
    source = source.replace(
        "    float sum = 0;\n    for (int block",
        f"    {device}\n    float sum = 0;\n    for (int block",
    )
    return source.replace("dim3(32, WARPS)>>>", f"{threads}>>>")


exits = """
cudaEvent_t begin, end; cudaEventCreate(&begin); cudaEventCreate(&end); float ms;
    if (cudaEventElapsedTime(&ms, begin, end) != cudaSuccess) exit(1);
"""
multimem = """asm volatile("{ .reg .b64 a; mov.b64 a, 0; "
    "multimem.red.relaxed.sys.global.add.u32 [a], 1; }");"""


@pytest.mark.parametrize(
    ("source", "words"),
    [
        (of_cuda(exits), "no time can be measured"),
        (
            of_cuda("", multimem, "dim3(32, 64)"),
            "multimem.red.relaxed.sys.global.add.u32 is not emulated",
        ),
        pytest.param(
            of_cuda("cudaIpcMemHandle_t h; cudaIpcGetMemHandle(&h, c.data_ptr());"),
            "IpcGetMemHandle",
            marks=pytest.mark.corpus,
        ),
    ],
    ids=["an error code that ends the process", "too many threads of what is not emulated", "IPC"],
)
def test_compiled_code_that_is_refused_something_is_unclear(
    source: str, words: str, tmp_path: Path
) -> None:
    exit_code, verdict, output = checked(tmp_path, source)
    assert (exit_code, verdict["unclear"]) == (3, True), output
    assert words in output


def test_too_many_threads_of_what_is_emulated_fail(tmp_path: Path) -> None:
    exit_code, _, output = checked(tmp_path, of_cuda("", "", "dim3(32, 64)"))
    assert exit_code == 1, output


@pytest.mark.parametrize(
    ("lines", "exit_code"),
    [(timed.format("raise ValueError('tuning failed')"), 3), ("raise ValueError('mine')", 1)],
)
def test_explain_ends_as_a_verdict_would(lines: str, exit_code: int, tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text(of_torch(lines))
    done = CliRunner().invoke(main, ["explain", str(path), "--shape", "128,256,1"])
    assert done.exit_code == exit_code, done.output


def test_what_is_refused_to_the_file_by_itself_is_no_reason_to_warn(tmp_path: Path) -> None:
    path, verdict = tmp_path / "mine.py", tmp_path / "verdict.json"
    alone = "\n\nif __name__ == '__main__':\n    torch.zeros(9).cuda().to_sparse()\n"
    path.write_text(of_torch("") + alone)
    done = CliRunner().invoke(main, ["test", str(path), "--output", str(verdict)])
    assert done.exit_code == 0, done.output
    assert json.loads(verdict.read_text())["alone"] is None
