"""A launch that no GPU takes is refused, whatever the submission's process says."""

import pytest

from nvfp4.emulator import Launch
from nvfp4.emulator.errors import NotAdmitted
from nvfp4.executor.admission import Admission
from nvfp4.model.tools import tools

pytestmark = pytest.mark.skipif(not tools("ptxas"), reason="needs ptxas")

_values = range(200)
_many_registers = "".join(
    [
        "ld.param.u64 %rd0, [p];\n",
        *(f"ld.volatile.global.u32 %r{i}, [%rd0+{4 * i}];\n" for i in _values),
        *(f"st.volatile.global.u32 [%rd0+{4 * i}], %r{i};\n" for i in reversed(_values)),
    ]
)


def admit(body: str, threads: int = 128, version: str = "8.8") -> str:
    """Why it was not asked about. Raises what the executor would."""
    ptx = (
        f".version {version}\n.target sm_100a\n.address_size 64\n"
        ".visible .entry k(.param .u64 p) {\n.reg .b64 %rd<2>; .reg .b32 %r<200>;\n"
        f"{body}\nret;\n}}\n"
    )
    launch = Launch(ptx, "k", (1, 1, 1), (threads, 1, 1), [bytes(8)])
    return Admission().require(launch)


def test_what_ptxas_takes_is_admitted() -> None:
    admit("mov.u32 %r0, 1;")


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (".reg .b32 z; .reg .b32 z;", "Duplicate definition of variable 'z'"),
        ("mov.u32 %r0, 0f3f800000;", "Arguments mismatch for instruction 'mov'"),
        (".shared .b8 x[300000]; st.shared.u8 [x], %r0;", "too much shared data"),
    ],
)
def test_what_ptxas_refuses_is_not_admitted(body: str, said: str) -> None:
    with pytest.raises(NotAdmitted, match=said):
        admit(body)


def test_a_block_may_not_have_more_registers_than_a_multiprocessor() -> None:
    admit(_many_registers, threads=256)
    with pytest.raises(NotAdmitted, match=r"1024 threads of 2\d\d registers; a block has 65536"):
        admit(_many_registers, threads=1024)


def test_ptx_that_no_assembler_knows_is_not_said_to_be_wrong() -> None:
    assert admit("mov.u32 %r0, 1;") == ""
    said = admit("mov.u32 %r0, 1;", version="99.0")
    assert said == "no ptxas here knows the PTX of k; a newer one may"
