"""Conversions that are software because of the architecture that a kernel was compiled for."""

import numpy as np
import pytest
from ptx_runs import run_ptx

from nvfp4.emulator.software import software_lines
from nvfp4.records.failures import Finding

# As nvcc writes it: two instructions of cuda_fp6.hpp, inlined into cuda_fp4.hpp, into line 30.
PTX = """
.version 8.6
.target TARGET
.address_size 64
.visible .entry k(.param .u64 p)
{
	.reg .b32 %r<4>;
	.reg .b64 %rd<4>;
	.loc	1 29 5
	ld.param.b64 	%rd1, [p];
	ld.global.b32 	%r1, [%rd1];
	.loc	1 30 5
	.loc	2 511 9, function_name $L__info_string0, inlined_at 1 30 5
	.loc	3 557 13, function_name $L__info_string1, inlined_at 2 511 9
	shl.b32 	%r2, %r1, 9;
	and.b32 	%r3, %r2, 3072;
	.loc	1 31 5
	st.global.b32 	[%rd1], %r3;
	ret;
}
	.file	1 "/home/me/submission.py"
	.file	2 "/cuda/include/FIRST.hpp"
	.file	3 "/cuda/include/SECOND.hpp"
"""


def text(target: str, first: str = "cuda_fp4", second: str = "cuda_fp6") -> str:
    return PTX.replace("TARGET", target).replace("FIRST", first).replace("SECOND", second)


@pytest.mark.parametrize(
    ("ptx", "found"),
    [
        (text("sm_100"), True),
        (text("sm_75"), True),  # nvcc's own choice
        (text("sm_100a"), False),
        (text("sm_100f"), False),
        (text("sm_90"), False),  # an H100 has no instruction for them either
        (text("sm_100", "cuda_fp16", "cuda_bf16"), False),
        (text("sm_100", "cuda_fp8", "cuda_fp16"), False),  # sm_100 has these
        (text("sm_75", "cuda_fp8", "cuda_fp16"), True),
    ],
)
def test_code_of_the_headers_is_software_for_architectures_without_a_suffix(
    ptx: str, found: bool
) -> None:
    lines = ptx.split("\n")
    there = {lines[n - 1].split()[0]: user.line for n, user in software_lines(ptx).items()}
    assert there == ({"shl.b32": 30, "and.b32": 30} if found else {})


def findings(ptx: str, check: bool = True) -> list[Finding]:
    memory = np.zeros(4, np.uint32)
    address = memory.ctypes.data
    parameters = [address.to_bytes(8, "little")]
    buffers = [("m", address, 16)]
    return run_ptx(ptx, "k", (1,), (1,), parameters, buffers=buffers, check=check).findings


def test_the_finding_counts_them_and_names_the_flag() -> None:
    (found,) = findings(text("sm_100"))
    assert found.code == "software_conversion"
    assert (found.file, found.line) == ("/home/me/submission.py", 30)
    assert found.message.startswith("2 of 6 warp instructions convert in software")
    assert "for sm_100, which lacks the instructions that sm_100a has" in found.message
    assert found.hint == 'extra_cuda_cflags=["-gencode=arch=compute_100a,code=sm_100a"]'


@pytest.mark.parametrize(("target", "check"), [("sm_100a", True), ("sm_100", False)])
def test_there_is_none_with_the_flag_nor_where_nobody_asks(target: str, check: bool) -> None:
    assert findings(text(target), check) == []
