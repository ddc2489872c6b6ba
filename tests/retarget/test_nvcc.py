"""The stand-in for nvcc: what it compiles as it is, and what it rewrites."""

import json
import os
import shlex
import signal
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch
from bot import root
from conftest import run_python

from nvfp4.capture.cuda.flags import device_linking
from nvfp4.capture.cuda.toolchain import Toolchain
from nvfp4.retarget import extensions, nvcc

HOPPER, BLACKWELL = (f"-gencode=arch=compute_{n},code=sm_{n}" for n in ("90", "100a"))

NARROW = r"""
__global__ void narrow(const unsigned* in, unsigned* out) {
  unsigned halves;
  asm("{ .reg .b8 a, b, c, d; mov.b32 {a, b, c, d}, %1; cvt.rn.f16x2.e2m1x2 %0, a; }"
      : "=r"(halves) : "r"(in[threadIdx.x]));
  out[threadIdx.x] = halves;
}
void run(const unsigned* in, unsigned* out) { narrow<<<1, 32>>>(in, out); }
"""
PLAIN = (
    "__global__ void plain(int* out) { *out = 1; }\nvoid run(int* out) { plain<<<1, 1>>>(out); }"
)
TENSOR_MEMORY = """
__global__ void waits() {
  asm volatile("tcgen05.wait::ld.sync.aligned;");
}
"""


@pytest.mark.parametrize(
    ("word", "links"), [("-dc", True), ("-rdc=true", True), ("-rdc=false", False), ("-c", False)]
)
def test_device_code_that_is_linked_later_is_seen(word: str, links: bool) -> None:
    assert (device_linking(["-O3", word]) == word) is links


@pytest.mark.parametrize(
    ("said", "fits"),
    [
        ("ptxas k.ptx, line 34; error : cvt with .e2m1x2 not supported on .target 'sm_90'", False),
        ('k.cu(3): error: identifier "__ffma2_rn" is undefined', False),
        ("k.cu(3): error: expected a ';'", True),
        ("nvcc warning : sm_75 is old\nk.cu(3): error: expected a ';'", True),
    ],
)
def test_which_errors_may_be_of_the_architecture(said: str, fits: bool) -> None:
    assert nvcc.fits_not(said) is not fits


class Compiler:
    """Runs the program on a source in a folder of its own."""

    def __init__(self, folder: Path, toolchain: Toolchain) -> None:
        self.folder = folder
        self.nvcc = str(toolchain.nvcc)
        self.object, self.report = folder / "k.o", folder / f"k.o{extensions.REPORT}"

    def run(self, retarget: str, source: str, *words: str) -> subprocess.CompletedProcess[str]:
        (self.folder / "k.cu").write_text(source)
        program = (str(root / "nvfp4/retarget/nvcc.py"), retarget, "sm_100a", "90", "rules")
        asked = (self.nvcc, *words, "-c", "k.cu", "-o", "k.o")
        return run_python(*program, *asked, cwd=self.folder)

    def images(self) -> list[tuple[int, int]]:
        """(kind, architecture) of each image of the fat binary; kind 1 is PTX, 2 machine code."""
        data, found, at = self.object.read_bytes(), [], -1
        magic = struct.pack("<I", 0xBA55ED50)
        while (at := data.find(magic, at + 1)) >= 0:
            _, header_bytes, size = struct.unpack_from("<HHQ", data, at + 4)
            image = at + header_bytes
            while image < at + header_bytes + size:
                kind, _, image_header, nbytes = struct.unpack_from("<HHIQ", data, image)
                found.append((kind, *struct.unpack_from("<I", data, image + 28)))
                image += image_header + nbytes
        return found

    def machine_code(self) -> list[bytes]:
        """The code of each kernel of each image, in order."""
        data, found, at = self.object.read_bytes(), [], 0
        while (at := data.find(b"\x7fELF\x02\x01", at + 1)) >= 0:
            (first,) = struct.unpack_from("<Q", data, at + 40)
            size, count, names = struct.unpack_from("<HHH", data, at + 58)
            sections = [
                struct.unpack_from("<IIQQQQ", data, at + first + n * size) for n in range(count)
            ]
            text = sections[names][4]
            for name, *_, offset, nbytes in sections:
                start = at + text + name
                if data[start : start + 6] == b".text.":
                    found.append(data[at + offset : at + offset + nbytes])
        return found

    def reported(self) -> list[dict[str, Any]]:
        return json.loads(self.report.read_text())


@pytest.fixture
def compiler(tmp_path: Path, toolchain: Toolchain) -> Compiler:
    return Compiler(tmp_path, toolchain)


LOCAL = """
#include <cuda_fp16.h>
static __device__ int counter;
__constant__ int table[2] = {3, 4};
namespace {
__global__ void hidden(int* out) { out[threadIdx.x] = atomicAdd(&counter, table[1]); }
}
template <typename T> static __global__ void scaled(T* out) { out[threadIdx.x] *= T(2); }
void run(int* a, __half* b) {
  hidden<<<1, 32>>>(a);
  scaled<<<1, 32>>>(a);
  scaled<<<1, 32>>>(b);
}
"""
BOTH = "-gencode=arch=compute_90a,code=sm_90a -gencode=arch=compute_100a,code=sm_100a"


def test_what_compiles_as_it_is_is_byte_for_byte_what_nvcc_makes(compiler: Compiler) -> None:
    compiler.report.write_text("[]")  # of a build before
    words = f"-O3 --use_fast_math -lineinfo {BOTH}"
    ended = compiler.run("auto", LOCAL, *words.split())
    assert (ended.returncode, ended.stderr) == (0, "")
    assert sorted(compiler.images()) == [(2, 90), (2, 100)]
    assert not compiler.report.exists()
    ours = compiler.machine_code()
    assert len(ours) == 3 * words.count("-gencode")
    command = [compiler.nvcc, *words.split(), "-c", "k.cu", "-o", "k.o"]
    subprocess.run(command, cwd=compiler.folder, check=True)
    assert ours == compiler.machine_code()


def test_both_halves_of_nvcc_run_beside_each_other(compiler: Compiler, tmp_path: Path) -> None:
    seen: list[str] = []
    both = threading.Barrier(2, timeout=60)

    def prepare(tool: str, step: str) -> str:
        seen.append(tool)
        if tool in ("cudafe++", "cicc"):
            both.wait()
        return step

    (tmp_path / "k.cu").write_text(PLAIN)
    words = [HOPPER, "-c", str(tmp_path / "k.cu"), "-o", str(compiler.object)]
    assert nvcc.run_steps(compiler.nvcc, words, prepare=prepare) == ""
    assert sorted(seen) == ["cicc", "cudafe++", "fatbinary", "gcc", "gcc", "gcc", "ptxas"]
    assert compiler.images() == [(2, 90)]


def test_an_error_that_both_halves_find_is_told_once(compiler: Compiler) -> None:
    ended = compiler.run("auto", "void f() { nowhere(); }", HOPPER)
    assert ended.returncode == 1
    assert ended.stderr.count('identifier "nowhere" is undefined') == 1


def test_what_ptxas_refuses_is_rewritten(compiler: Compiler) -> None:
    words = "--use_fast_math -maxrregcount=64 -lineinfo -std=c++17 -Xptxas -v -MD -MF k.d"
    ended = compiler.run("auto", NARROW, HOPPER, *words.split(), "-Xcompiler", "-fPIC")
    assert ended.returncode == 0, ended.stderr
    assert "for 'sm_90a'" in ended.stderr, "options reach the assembler"
    assert "maximum register limit 256" in ended.stderr
    assert compiler.images() == [(2, 90)]
    (kernel,) = compiler.reported()
    assert (kernel["kernel"], kernel["source"], kernel["target"]) == ("narrow", "sm_100a", "sm_90a")
    assert kernel["rewritten"] == {"cvt.rn.f16x2.e2m1x2": 1}
    depends = (compiler.folder / "k.d").read_text()
    assert depends.startswith("k.o: k.cu")
    assert "cuda_runtime.h" in depends


def test_code_for_another_gpu_alone_is_rewritten_at_once(compiler: Compiler) -> None:
    ended = compiler.run("auto", PLAIN, BLACKWELL)
    assert ended.returncode == 0, ended.stderr
    assert compiler.images() == [(2, 90)]
    assert [kernel["rewritten"] for kernel in compiler.reported()] == [{}]


def test_what_cannot_be_rewritten_is_refused_by_name_and_line(compiler: Compiler) -> None:
    ended = compiler.run("auto", TENSOR_MEMORY, HOPPER)
    assert ended.returncode == 1
    assert "tcgen05.wait::ld.sync.aligned cannot run on sm_90a" in ended.stderr
    assert "k.cu:3" in ended.stderr
    assert not compiler.object.exists()
    assert not compiler.report.exists()


def test_what_no_gpu_s_nvcc_would_compile_is_not_rewritten(compiler: Compiler) -> None:
    ended = compiler.run("auto", NARROW, "-arch=sm_80")
    assert ended.returncode == 1 and "cvt with .e2m1x2" in ended.stderr, ended.stderr
    assert not compiler.object.exists()


def test_device_code_to_be_linked_is_refused(compiler: Compiler) -> None:
    ended = compiler.run("auto", PLAIN, BLACKWELL, "-rdc=true")
    assert ended.returncode == 1
    assert "-rdc=true: device code that is linked later cannot be retargeted" in ended.stderr


class TorchS(ModuleType):
    """torch.utils.cpp_extension, as far as it matters, on a machine with CUDA."""

    CUDA_HOME = "/opt/cuda"
    COMMON_NVCC_FLAGS = ("--expt-relaxed-constexpr",)

    def __init__(self) -> None:
        super().__init__("torch.utils.cpp_extension")
        self.get_default_build_root = lambda: "/builds"
        self.built: list[dict[str, Any]] = []
        self.JIT_EXTENSION_VERSIONER = SimpleNamespace(entries={"nvfp4_gemv_tcgen05": 1})
        self._write_ninja_file_and_build_library = lambda **named: self.built.append(named)
        self._import_module_from_library = lambda *named: None
        self.load_inline = lambda **named: None


@pytest.fixture
def start(monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[str | None, str]]:
    """Starts anew; the compiler that torch is told to call, and the folder that it builds in."""
    module = TorchS()
    monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.setattr(torch.utils, "cpp_extension", module, raising=False)  # if it was imported
    names = "PYTORCH_NVCC", "TORCH_EXTENSIONS_DIR"

    def start(
        retarget: str = "auto",
        arch: str = "sm_100a",
        capability: tuple[int, int] = (9, 0),
        **given: str,
    ) -> tuple[str | None, str]:
        for name in names:  # not set, and removed again
            monkeypatch.setenv(name, given.get(name, ""))
            if name not in given:
                monkeypatch.delenv(name)
        extensions.start(retarget, arch, lambda: capability)
        return os.environ.get(names[0]), os.environ[names[1]]

    return start


def test_torch_is_told_what_to_call(start: Any) -> None:
    called, _ = start()
    python, program, *words, _, compiler = shlex.split(called)
    assert (python, Path(program)) == (sys.executable, root / "nvfp4/retarget/nvcc.py")
    assert words == ["auto", "sm_100a", "90"]
    assert compiler == "/opt/cuda/bin/nvcc"


@pytest.mark.parametrize(
    ("retarget", "capability"), [("auto", (7, 5)), ("never", (9, 0))], ids=["too old", "never"]
)
def test_nothing_is_offered(retarget: str, capability: tuple[int, int], start: Any) -> None:
    assert start(retarget, capability=capability)[0] is None


def test_for_its_own_gpu_nothing_is_rewritten(start: Any, compiler: Compiler) -> None:
    _, _, *words, _, _ = shlex.split(start(capability=(10, 0))[0])
    assert words == ["never", "sm_100a", "100"]
    ended = compiler.run("never", NARROW, HOPPER)
    assert ended.returncode == 1
    assert ".e2m1x2' not supported" in ended.stderr
    assert not compiler.report.exists()


def test_a_compiler_of_the_user_stays(start: Any) -> None:
    assert start(PYTORCH_NVCC="ccache nvcc")[0] == "ccache nvcc"


def test_what_is_made_in_another_way_lies_in_another_folder(
    start: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, first = start()
    assert Path(first).parent == Path("/builds")
    assert start() == start()
    assert start(TORCH_EXTENSIONS_DIR="/mine")[1] == first.replace("/builds", "/mine")
    folders = [
        *(first, start("never")[1], start(arch="sm_103a")[1], start(capability=(8, 0))[1]),
        *(start("never", capability=(8, 0))[1], start(PYTORCH_NVCC="ccache nvcc")[1]),
    ]
    for what, value in ((TorchS, "CUDA_HOME"), (torch, "__version__"), (sys, "version")):
        monkeypatch.setattr(what, value, "another")
        folders.append(start()[1])
    monkeypatch.setattr(extensions, "_rules", lambda: "others")
    folders.append(start()[1])
    assert len({*folders}) == len(folders)


def test_a_turn_ends_with_its_process(tmp_path: Path) -> None:
    lock = str(tmp_path / "lock")
    (tmp_path / "lock").touch()  # torch's, which a killed build has left
    read_fd, write_fd = os.pipe()
    child = os.fork()
    if child == 0:
        extensions.Turn(lock).try_acquire()
        os.write(write_fd, b"built halfway")
        signal.pause()
    assert os.read(read_fd, 64)
    threading.Timer(0.3, os.kill, (child, signal.SIGKILL)).start()
    turn, start_s = extensions.Turn(lock), time.monotonic()
    assert turn.try_acquire(), "nobody goes on with what another has built"
    assert time.monotonic() - start_s > 0.2, "the other's turn comes first"
    turn.release()
    os.waitpid(child, 0)
    os.close(read_fd)
    os.close(write_fd)


def test_loaded_extensions_tell_what_was_rewritten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(extensions, "rewritten_kernels", [])
    entry = {"kernel": "k", "rewritten": {}}
    for folder in ("loaded", "other"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / f"cuda.cuda.o{extensions.REPORT}").write_text(json.dumps([entry]))
    load = extensions._noted(lambda name, folder, is_python_module: name)
    for _ in range(2):
        assert load("gemv", str(tmp_path / "loaded"), True) == "gemv"
        assert extensions.rewritten_kernels == [entry], "once a library"
