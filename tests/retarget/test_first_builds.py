"""The first judgement of a CUDA C++ extension: several processes want to build it at once."""

import json
import os
import re
import shutil
import textwrap
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from bot import root
from conftest import alone, cache_below, run_python, with_the_judge

from nvfp4.capture.cuda.toolchain import Toolchain
from nvfp4.cli.judging.bot import Bot
from nvfp4.cli.judging.build_ahead import BuildAhead
from nvfp4.cli.problem import load_problem
from nvfp4.judge.submission_process import SubmissionFailed, SubmissionProcess
from nvfp4.records.options import Options
from nvfp4.records.processes import ForkServer
from nvfp4.retarget import extensions
from nvfp4.sandbox import workers

pytestmark = pytest.mark.usefixtures("server_of_executors")

PRETENDED = """
from types import SimpleNamespace

from nvfp4.capture.imports import when_imported

def torch_has_a_gpu():
    import torch
    torch.version.cuda = torch.version.cuda or "13.0"
    torch.cuda._is_compiled = torch.cuda.is_available = lambda: True
    torch.cuda.get_device_capability = lambda *_: (9, 0)
    torch.cuda.synchronize = lambda *_: None

def no_driver_is_called():
    from nvfp4.gpu import timing
    from nvfp4.worker import choose_runner, runner
    runner.call_timer = lambda *_: timing.CpuTimer()
    choose_runner.GatedCalls = lambda _: SimpleNamespace(operations={})

when_imported("torch", torch_has_a_gpu)
when_imported("nvfp4.worker.choose_runner", no_driver_is_called)
"""
"""A module sitecustomize with which a process believes that it is on a machine with an H100."""

NARROW = r"""
#include <Python.h>

__global__ void narrow(unsigned* values) {
  unsigned halves;
  asm("{ .reg .b8 a, b, c, d; mov.b32 {a, b, c, d}, %1; cvt.rn.f16x2.e2m1x2 %0, a; }"
      : "=r"(halves) : "r"(values[threadIdx.x]));
  values[threadIdx.x] = halves;
}

void run(unsigned* values) { narrow<<<1, 32>>>(values); }

static PyModuleDef narrow_module = {PyModuleDef_HEAD_INIT, "narrow", nullptr, -1, nullptr};

PyMODINIT_FUNC PyInit_narrow(void) { return PyModule_Create(&narrow_module); }
"""

SUBMISSION = f"""
import json, os, tempfile, time
from pathlib import Path

from torch.utils.cpp_extension import load_inline

stubs = Path(os.environ["XDG_CACHE_HOME"], "stubs")
stubs.mkdir(exist_ok=True)
for name in ("c10_cuda", "torch_cuda"):  # which a torch with CUDA has; scripts for the linker
    part = stubs / f"{{name}}-{{os.getpid()}}-{{time.time_ns()}}"
    part.write_text("INPUT(-lc10)")
    part.replace(stubs / f"lib{{name}}.so")

module = load_inline(
    "narrow",
    cpp_sources="",
    cuda_sources={NARROW!r},
    extra_cuda_cflags=["-gencode=arch=compute_100a,code=sm_100a"],
    extra_ldflags=[f"-L{{stubs}}"],
    no_implicit_headers=True,
    build_directory=tempfile.mkdtemp(),
)
folder = Path(module.__file__).parent
said = {{
    "folder": folder.name,
    "rewritten": len([*folder.glob("*.retargeted.json")]),
    "times": folder.joinpath(".ninja_log").read_text().count("cuda.cuda.o"),
    "compiler": os.environ.get("PYTORCH_NVCC"),
}}
raise ValueError("said " + json.dumps(said))
"""


@pytest.fixture(scope="module")
def hooks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a sitecustomize that pretends a GPU."""
    folder = tmp_path_factory.mktemp("hooks")
    (folder / "sitecustomize.py").write_text(PRETENDED)
    return folder


@pytest.fixture(scope="module")
def servers() -> Iterator[list[ForkServer]]:
    """The server of workers that believes it, for the tests of this file alone."""
    own: list[ForkServer] = []
    yield own
    own.clear()


@pytest.fixture
def pretended(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    toolchain: Toolchain,
    hooks: Path,
    servers: list[ForkServer],
) -> Path:
    """A folder with a submission, where processes believe that they have a GPU; caches are
    empty."""
    if shutil.which("ninja") is None:
        pytest.skip("torch builds with ninja")
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "submission.py").write_text(SUBMISSION)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join((str(hooks), with_the_judge["PYTHONPATH"])))
    cache_below(tmp_path / "caches", monkeypatch)
    home = toolchain.nvcc.resolve().parent.parent
    monkeypatch.setenv("CUDA_HOME", str(home))
    monkeypatch.setattr(workers, "_servers", servers)
    monkeypatch.setattr(SubmissionProcess, "_connect", lambda self, timeout_s: None)
    monkeypatch.setenv("LD_LIBRARY_PATH", f"{home}/lib64:{home}/lib")
    return folder / "submission.py"


def said(text: str) -> Any:
    """What the submission has said."""
    assert "ValueError: said " in text, text
    *_, found = text.rpartition("ValueError: said ")
    return json.JSONDecoder().raw_decode(found)[0]


def by_itself(submission: Path, options: Options) -> Any:
    environment = {**os.environ, **options.as_variable()}
    return said(run_python(*alone, cwd=submission.parent, env=environment).stderr)


def built_ahead(submission: Path, options: Options) -> None:
    """As the command does it."""
    bot = Bot(load_problem(), submission.read_bytes(), options)
    with BuildAhead(["9.0"]) as ahead:
        ahead.begin(bot).result(120)


def failure_of_loading(submission: Path, options: Options, says: str) -> SubmissionFailed:
    """How the import of a submission fails in a worker. says: a pattern of the message."""
    with (
        SubmissionProcess(submission, options) as process,
        pytest.raises(SubmissionFailed, match=says) as failed,
    ):
        process.load(500)
    return failed.value


def in_a_worker(submission: Path, options: Options) -> Any:
    return said(str(failure_of_loading(submission, options, "ValueError: said ")))


def test_whoever_loads_a_submission_builds_the_same(pretended: Path) -> None:
    options = Options(retarget="auto")
    with ThreadPoolExecutor() as pool:
        others = [pool.submit(in_a_worker, pretended, options) for _ in range(2)]
        found = [by_itself(pretended, options), *(each.result() for each in others)]
    assert found[0]["compiler"]
    assert found[0] == found[1] == found[2]
    assert (found[0]["rewritten"], found[0]["times"]) == (1, 1)


def test_what_was_built_ahead_is_what_the_judgement_loads(pretended: Path, tmp_path: Path) -> None:
    options = Options(retarget="auto")
    built_ahead(pretended, options)
    (log,) = tmp_path.glob("caches/nvfp4/submissions/*/torch_extensions_dir/*/narrow/.ninja_log")
    before = log.read_text()
    assert "cuda.cuda.o" in before
    assert in_a_worker(pretended, options)["times"] == 1
    assert log.read_text() == before


LATER = """
from torch.utils.cpp_extension import load_inline

def custom_kernel(data):
    assert [each.ndim for each in data] == [3, 3, 3, 3, 6, 6, 3]
    load_inline("later", cpp_sources="int f() { return 1; }", no_implicit_headers=True)
"""


def test_what_is_built_at_the_first_call_is_built_ahead(pretended: Path, tmp_path: Path) -> None:
    pretended.write_text(LATER)
    built_ahead(pretended, Options())
    (log,) = tmp_path.glob("caches/nvfp4/submissions/*/torch_extensions_dir/*/later/.ninja_log")
    assert "main.o" in log.read_text()


def test_without_a_gpu_too_it_runs_alone_as_a_worker_loads_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "submission.py"
    path.write_text(
        "import json, torch\n"
        "said = json.dumps(torch.cuda.get_device_capability())\n"
        "raise ValueError(f'said {said}')\n"
    )
    monkeypatch.setenv("PYTHONPATH", with_the_judge["PYTHONPATH"])
    options = Options(arch="sm_90a")
    assert by_itself(path, options) == in_a_worker(path, options) == [9, 0]


TWICE = """
from torch.utils.cpp_extension import load_inline

for _ in range(2):
    try:
        load_inline("broken", cpp_sources="{source}", no_implicit_headers=True)
    except Exception as error:
        said = error
raise said
"""


COMPILER = """#!/bin/sh
case "$*" in *"main.cpp -o"*) echo >>"$XDG_CACHE_HOME/compiled" ;; esac
grep -qs tcgen05 main.cpp && echo "error: tcgen05.mma cannot run on sm_90a: submission.py:6" &&
  exit 1
exec g++ "$@"
"""


@pytest.mark.parametrize(
    ("source", "code", "says"),
    [
        ("int f() { return g(); }", "build.compiler", r"submission\.py:6"),
        ("int tcgen05;", "retarget.no_replacement", r"^tcgen05\.mma cannot run on sm_90a"),
    ],
)
def test_what_can_never_be_compiled_is_compiled_once_and_told_in_short_each_time(
    source: str, code: str, says: str, pretended: Path, hooks: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pretended.write_text(TWICE.format(source=source))
    compiler = hooks / "c++"  # which the processes see
    compiler.write_text(COMPILER)
    compiler.chmod(0o755)
    monkeypatch.setenv("CXX", str(compiler))
    told = []
    for _ in range(2):
        failed = failure_of_loading(pretended, Options(retarget="auto"), says)
        told.append(str(failed))
        assert failed.failure.code == code
    assert told[0] == told[1]
    assert "submission.py:6" in told[0]
    assert "-isystem" not in told[0]
    (compiled,) = pretended.parent.parent.glob("caches/nvfp4/submissions/*/compiled")
    assert compiled.read_text() == "\n"


def test_what_may_be_the_machine_s_fault_is_built_again(tmp_path: Path) -> None:
    (tmp_path / "main.cpp").write_text("int f() { return g(); }")
    asked = {"sources": [str(tmp_path / "main.cpp")], "build_directory": str(tmp_path)}
    for said in ("c++: fatal error: Killed signal terminated program", "error: No space left"):
        extensions.Failure.of(asked).remember(said)
        extensions.Failure.of(asked).refuse_again()
    for said in ("tcgen05.alloc cannot run on sm_90a", "'g' was not declared"):
        extensions.Failure.of(asked).remember(f"main.cpp:1:18: error: {said}")
        with pytest.raises(RuntimeError, match=said):
            extensions.Failure.of({**asked, "verbose": True}).refuse_again()
    extensions.Failure.of({**asked, "extra_cflags": ["-O1"]}).refuse_again()
    (tmp_path / "main.cpp").write_text("int f() { return 1; }")
    extensions.Failure.of(asked).refuse_again()


NAIVE = root / "ladder/cuda/01_naive.py"


def require_that_naive_passes(folder: Path) -> None:
    """Test the ladder's first kernel in CUDA C++ with caches in a folder; it passes."""
    homes = {"XDG_CACHE_HOME": str(folder / "caches"), "XDG_DATA_HOME": str(folder / "data")}
    command = ("-m", "nvfp4", "test", str(NAIVE), "--case", "128x256x1", "--json")
    ended = run_python(*command, env={**with_the_judge, **homes, "HOME": str(folder)})
    verdict = json.loads(ended.stdout)
    assert [each["message"] for each in verdict["tests"] if each["status"] != "pass"] == []
    assert verdict["passed"]


@pytest.mark.gpu
def test_cuda_cpp_for_another_gpu_passes_at_the_first_try(tmp_path: Path) -> None:
    for _ in range(2):
        require_that_naive_passes(tmp_path)


@pytest.mark.gpu
def test_on_a_gpu_a_judgement_finds_built_what_was_built_ahead_without_it(
    tmp_path: Path, caches: Path
) -> None:
    import torch

    bot = Bot(load_problem(), NAIVE.read_bytes(), Options())
    with BuildAhead(["{}.{}".format(*torch.cuda.get_device_capability())]) as ahead:
        ahead.begin(bot).result(200)
    (log,) = caches.glob("submissions/*/torch_extensions_dir/*/*/.ninja_log")
    before = log.read_text()
    assert "cuda.cuda.o" in before
    require_that_naive_passes(tmp_path)
    assert log.read_text() == before


CUTE = """import cutlass.cute as cute

@cute.kernel
def kernel():
    tidx, _, _ = cute.arch.thread_idx()
    cute.printf("{}", not_there + tidx)

@cute.jit
def launch():
    kernel().launch(grid=[1, 1, 1], block=[32, 1, 1])

cute.compile(launch)
"""

TRITON = """import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

@triton.jit
def kernel(p):
    tl.store(p, not_there)

triton.compile(ASTSource(kernel, {"p": "*fp32"}), target=GPUTarget("cuda", 90, 32))
"""

OF_PYTHON = """
#include <Python.h>
static PyModuleDef unlinked = {PyModuleDef_HEAD_INIT, "unlinked", nullptr, -1, nullptr};
int g();
PyMODINIT_FUNC PyInit_unlinked(void) { return g() ? nullptr : PyModule_Create(&unlinked); }
"""


def built(kind: str, source: str, flag: str = "-arch=sm_90a", name: str = "broken") -> str:
    """The lines that build an extension; {stubs} in them are linker flags of the machine."""
    sources = {"cpp_sources": "", kind: source}
    given = ", ".join(f'{name}="""{text}"""' for name, text in sources.items())
    return (
        "from torch.utils.cpp_extension import load_inline\n\n"
        f'load_inline("{name}", {given}, extra_cuda_cflags=["{flag}"], verbose=True,\n'
        "    extra_ldflags=[stubs], no_implicit_headers=True)\n"
    )


MISTAKES = {
    "syntax": (
        built("cuda_sources", "__global__ void k(int *p) {\n  p[0] = 1\n}"),
        *('submission.py(+5): error: expected a ";"', "the end of the line before"),
    ),
    "a missing symbol": (
        built("cuda_sources", "__global__ void k(int *p) {\n  p[0] = not_there(p);\n}"),
        *('submission.py(+4): error: identifier "not_there" is undefined', "declare it above"),
    ),
    "an architecture that is none": (
        built("cuda_sources", "__global__ void k() {}", "-gencode=arch=compute_91,code=sm_91"),
        *("nvcc fatal   : Unsupported gpu architecture 'compute_91'", "a B200 is sm_100a"),
    ),
    "link": (
        built("cpp_sources", OF_PYTHON, name="unlinked"),
        *("unlinked cannot be loaded: unlinked.so: undefined symbol: _Z1gv", "extra_ldflags"),
    ),
    "ptxas": (
        built(
            "cuda_sources", '__global__ void k(int *p) {\n  asm("mov.b48 %0, 1;" : "=r"(p[0]));\n}'
        ),
        *("submission.py:+4: error: Unexpected instruction types", "the PTX manual"),
    ),
    "a missing header": (
        built("cuda_sources", '#include "mine.hpp"\n__global__ void k() {}'),
        *("submission.py:+3:10: fatal error: mine.hpp: No such file", "a submission is one file"),
    ),
    "a static assertion": (
        built(
            "cuda_sources",
            'template <int N> struct S { static_assert(N % 2 == 0, "N is odd"); };\nS<3> s;',
        ),
        *('submission.py(+3): error: static assertion failed with "N is odd"', "the values"),
    ),
    "C++": (
        built("cpp_sources", "int f() {\n  return g();\n}"),
        *("submission.py:+4:18: error: ", "declare it above"),
    ),
    "CuTe DSL": (CUTE, "submission.py:+6", None),
    "Triton": (TRITON, "tl.store(p, not_there)", None),
    "import": ("import not_there\n", "No module named 'not_there'", None),
}
"""By what is wrong: lines of a submission, what is told of them, and a part of the hint."""

TRIED = """
def f{number}():
    try:
{lines}
    except BaseException as error:
        code, hint = getattr(error, "verdict_code", None), getattr(error, "hint", None)
        return code, error.message if code else str(error), hint
"""


USUAL = ["syntax", "C++", "import"]


@pytest.mark.parametrize("names", [USUAL, pytest.param([*MISTAKES], marks=pytest.mark.corpus)])
def test_a_compiler_s_words_and_a_hint_are_the_same_with_and_without_a_gpu(
    names: list[str], pretended: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    text = f"import json, os\n\nstubs = '-L{tmp_path}'\n"
    for library in ("c10_cuda", "torch_cuda"):  # which a torch with CUDA has
        (tmp_path / f"lib{library}.so").write_text("INPUT(-lc10)")
    places = []
    for number, name in enumerate(names):
        text += TRIED.partition("{lines}")[0].format(number=number)
        places.append(text.count("\n"))
        text += textwrap.indent(MISTAKES[name][0], 8 * " ") + TRIED.partition("{lines}")[2]
    calls = ", ".join(f"f{number}()" for number in range(len(names)))
    text += f"\nsaid = json.dumps([{calls}])\n"
    text += 'open(os.environ["XDG_CACHE_HOME"] + "/said", "w").write(said)\nraise ValueError\n'
    pretended.write_text(text)
    told = []
    for _ in range(2):
        failure_of_loading(pretended, Options(retarget="auto"), "ValueError")
        (file,) = tmp_path.glob("caches/nvfp4/submissions/*/said")
        told.append(re.sub(r"/tmp/nvfp4-\w+/", "", file.read_text()))
        file.unlink()
        monkeypatch.undo()  # no GPU is pretended
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "caches"))
    on_gpu, without = map(json.loads, told)
    assert on_gpu == without
    for (code, said, hint), begins, name in zip(without, places, names, strict=True):
        _, says, helps = MISTAKES[name]
        parts = re.fullmatch(r"(.*?)(?:\+(\d+)(.*))?", says)
        assert parts is not None
        text, offset, rest = parts.groups()
        assert (f"{text}{begins + int(offset)}{rest}" if offset else says) in said, name
        assert (code == "build.compiler") == (helps is not None), name
        assert helps is None or helps in hint, name
