"""A fault in a CuTe DSL kernel names the line of Python that caused it."""

# mypy: disable-error-code="no-untyped-def"

import re
import sys
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("cutlass")

import cutlass
import cutlass.cute as cute
import cutlass.utils
import torch
from conftest import intercept
from cutlass import Float32, Int32, Int64
from cutlass._mlir.dialects import llvm
from cutlass.cutlass_dsl import T, dsl_user_op

from nvfp4.capture.patches import Patches
from nvfp4.emulation import Emulation
from nvfp4.emulator.errors import OutOfBounds
from nvfp4.problems.nvfp4_gemv.reference import generate_input
from nvfp4.records.launch import Launch
from nvfp4.tuner.space import load_submission

HERE = Path(__file__).resolve()
RUNGS = HERE.parents[2] / "ladder" / "cute"
# Before Python 3.11 there are no columns.
COLUMN = r":(\d+)" if sys.version_info >= (3, 11) else "()"
ELSEWHERE = """import cutlass.cute as cute
from cutlass import Float32, Int32


def load(tensor, i):
    value = tensor[i]
    return value + 1


@cute.jit
def load_jit(tensor: cute.Tensor, i: Int32) -> Float32:
    value = tensor[i]
    return value + 2
"""


@pytest.fixture(scope="module")
def elsewhere(tmp_path_factory: pytest.TempPathFactory) -> Any:
    path = tmp_path_factory.mktemp("elsewhere") / "helpers_of_the_kernel.py"
    path.write_text(ELSEWHERE)
    return load_submission(path)


def helper(tensor, i):
    value = tensor[i]  # helper
    return value * 3.0


def assembly(address, text, loc=None, ip=None):
    return llvm.inline_asm(
        T.f32(),
        [address.ir_value(loc=loc, ip=ip)],
        text,
        "=f,l",
        has_side_effects=True,
        is_align_stack=False,
        asm_dialect=llvm.AsmDialect.AD_ATT,
        loc=loc,
        ip=ip,
    )


@dsl_user_op
def several_lines(address, loc=None, ip=None):
    text = """{
    .reg .b64 t;
    add.u64 t, $1, 0;
    ld.global.f32 $0, [t];
    }"""
    return Float32(assembly(address, text, loc=loc, ip=ip))


def without_a_place(address):
    return Float32(assembly(address, "ld.global.f32 $0, [$1];"))


@cute.kernel
def faulty_kernel(
    source: cute.Tensor,
    target: cute.Tensor,
    address: Int64,
    way: cutlass.Constexpr,
    other: cutlass.Constexpr,
):
    tidx, _, _ = cute.arch.thread_idx()
    total = Float32(0)
    if cutlass.const_expr(way == "direct"):
        total += source[tidx + 1]  # direct
    elif cutlass.const_expr(way == "store"):
        target[tidx + 1] = total  # store
    elif cutlass.const_expr(way == "helper"):
        total += helper(source, tidx + 1)
    elif cutlass.const_expr(way == "elsewhere"):
        total += other.load(source, tidx + 1)
    elif cutlass.const_expr(way == "jit elsewhere"):
        total += other.load_jit(source, tidx + 1)
    elif cutlass.const_expr(way == "assembly"):
        total += several_lines(address + 4 * (Int64(tidx) + 1))  # assembly
    elif cutlass.const_expr(way == "assembly without a place"):
        total += without_a_place(address + 4 * (Int64(tidx) + 1))  # assembly without a place
    elif cutlass.const_expr(way == "copy"):
        part = cute.make_rmem_tensor((4,), Float32)
        cute.autovec_copy(cute.local_tile(source, (4,), (tidx,)), part)  # copy
        total += part[0] + part[1] + part[2] + part[3]
    elif cutlass.const_expr(way == "loop"):
        for i in cutlass.range(1000, unroll=1):
            total += source[tidx + i]  # loop
    target[tidx] = total


@cute.jit
def faulty(
    source: Int64, target: Int64, size: Int32, way: cutlass.Constexpr, other: cutlass.Constexpr
):
    tensors = [
        cute.make_tensor(
            cute.make_ptr(Float32, address, cute.AddressSpace.gmem, assumed_align=16),
            cute.make_layout(size),
        )
        for address in (source, target)
    ]
    faulty_kernel(*tensors, source, way, other).launch(grid=(1, 1, 1), block=(32, 1, 1))


def fault(way: str, other: Any) -> str:
    source, target = torch.zeros(32), torch.zeros(32)
    compiled = cute.compile(faulty, Int64(0), Int64(0), Int32(0), way, other)
    with pytest.raises(OutOfBounds) as caught:
        compiled(source.data_ptr(), target.data_ptr(), 32)
    return str(caught.value)


def line_of(way: str) -> tuple[int, str]:
    """The line that ends in a comment with these words, and its text."""
    lines = HERE.read_text(encoding="utf-8").splitlines()
    return next((n, t.strip()) for n, t in enumerate(lines, 1) if t.endswith(f"  # {way}"))


@pytest.mark.parametrize("way", ["direct", "store", "helper", "assembly", "copy", "loop"])
def test_the_line_of_an_access_is_named(way: str, emulation: Emulation, elsewhere: Any) -> None:
    message = fault(way, elsewhere)
    number, text = line_of(way)
    found = re.match(rf"(\S+/)?{HERE.name}:{number}{COLUMN}: error: .*\n *\d+ \| (.*)\n", message)
    assert found is not None, message
    assert found[3] == text
    line = HERE.read_text(encoding="utf-8").splitlines()[number - 1]
    beginning = line[int(found[2]) - 1 :] if found[2] else text
    assert beginning.startswith(("total", "source", "target", "several", "cute", "tensor"))
    assert re.search(r"\n  in kernel faulty_kernel, CTA .* thread ", message)


@pytest.mark.parametrize(("way", "number"), [("elsewhere", 6), ("jit elsewhere", 12)])
def test_the_line_of_a_helper_in_another_file_is_named(
    way: str, number: int, emulation: Emulation, elsewhere: Any
) -> None:
    place = (
        rf"{re.escape(elsewhere.__file__)}:{number}{COLUMN}: error: .*\n.* value = tensor\[i\]\n"
    )
    assert re.match(place, fault(way, elsewhere))


def test_where_cute_dsl_gives_no_line_the_one_before_is_said_to_be_near(
    emulation: Emulation, elsewhere: Any
) -> None:
    way = "assembly without a place"
    message = fault(way, elsewhere)
    number, text = line_of(way)
    place = rf"near (\S+/)?{HERE.name}:{number}: error: .*\n.* {re.escape(text)}\n"
    assert re.match(place, message)


def ptx_of(path: Path) -> str:
    """The text of a submission's kernel, loaded afresh: it compiles again."""
    launches: list[Launch] = []
    with intercept(launches.append):
        load_submission(path).custom_kernel(generate_input(128, 256, 1, seed=1))
    return launches[0].ptx


def without_lines(ptx: str) -> list[str]:
    """The text but for `.loc`, `.file` and empty lines."""
    return [
        line for line in ptx.splitlines() if line.strip() and not re.match(r"\s*\.(loc|file)", line)
    ]


def ptx_without_lines(path: Path) -> str:
    """The PTX without the switch. For a process of its own: CuTe DSL remembers the switch."""
    replace, set_variable = Patches.replace, Patches.set_variable

    def replace_but_lines(self: Patches, owner: Any, name: str, make: Any) -> None:
        if name != "lineinfo":
            replace(self, owner, name, make)

    def set_but_lines(self: Patches, name: str, value: str) -> None:
        if name != "CUTE_DSL_LINEINFO":
            set_variable(self, name, value)

    Patches.replace = replace_but_lines  # type: ignore[method-assign]
    Patches.set_variable = set_but_lines  # type: ignore[method-assign]
    return ptx_of(path)


@pytest.mark.parametrize(
    "path",
    [
        RUNGS / "03_block_sum.py",
        pytest.param(RUNGS / "06_split_k_shared.py", marks=pytest.mark.corpus),
        pytest.param(RUNGS / "12_one_asm.py", marks=pytest.mark.corpus),
    ],
    ids=lambda path: path.stem,
)
def test_line_information_changes_no_instruction(path: Path) -> None:
    with get_context("spawn").Pool(1) as pool:
        (without,) = pool.map(ptx_without_lines, [path])
    with_lines = ptx_of(path)
    assert ".loc" in with_lines
    assert ".loc" not in without
    assert without_lines(with_lines) == without_lines(without)
