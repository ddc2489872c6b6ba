"""Machine code is made once, beside what its process does meanwhile."""

import shutil
import subprocess
import threading
from pathlib import Path

import pytest
from model_kernels import MISSING

from nvfp4.model import assembly, tools
from nvfp4.model.assembly import assembled, located, start_assembling, usage
from nvfp4.model.gpu import NoPrediction

pytestmark = pytest.mark.skipif(MISSING, reason="there is no ptxas or no nvdisasm")
HEADER = ".version 8.8\n.target sm_100a\n.address_size 64\n"
PTX = f"{HEADER}.visible .entry k(.param .u64 p) {{ ret; }}\n"
Programs = list[str]


@pytest.fixture
def programs(monkeypatch: pytest.MonkeyPatch) -> Programs:
    """The programs that are run, in order."""
    run: Programs = []
    ended = tools.ended

    def noted(words: list[str]) -> tuple[bool, str]:
        run.append(Path(words[0]).name)
        return ended(words)

    monkeypatch.setattr(assembly, "ended", noted)
    assembly._outcome.cache_clear()
    assembly._cubin.cache_clear()
    return run


TABLE = Path(__file__).with_name("indirect_branch.ptx").read_text()
"""B goes on to D, and A to the end."""


def test_an_indirect_branch_leads_to_its_table_and_nowhere_else(programs: Programs) -> None:
    code = assembled(TABLE, "k", "sm_100a")
    (table,) = (each for each in code.blocks if "BRX" in code.instructions[each.end - 1].opcode)
    last = [code.instructions[code.blocks[at].end - 1].statement for at in table.branches]
    stored = {TABLE[at:].partition("%d0")[2].partition("]")[0] for at in last}
    assert stored == {"", "+8", "+12", "+16"}
    assert programs == ["ptxas", "nvdisasm", "nvdisasm"]


def test_what_was_started_is_waited_for_and_made_once(programs: Programs) -> None:
    start_assembling(PTX, "k", "sm_100a")
    start_assembling(PTX, "k", "sm_100a")
    assert assembled(PTX, "k", "sm_100a").instructions
    assert assembled(PTX, "k", "sm_100a").instructions
    assert programs == ["ptxas", "nvdisasm"]


def test_a_kernel_is_admitted_by_the_run_that_makes_its_machine_code(programs: Programs) -> None:
    assert usage(PTX, "k", "sm_100a") == tools.assemble(PTX, "k")
    named = f'{PTX}.file 1 "/of \u00fc"q/k.py", 7, 8\n'
    assert tools.assemble(named, "k") == tools.assemble(PTX, "k")
    assert assembled(PTX, "k", "sm_100a").instructions
    assert programs == ["ptxas", "nvdisasm"]
    other = PTX.replace(" k(", " other(")
    for text, arch in (
        (PTX, "sm_90a"),
        (PTX.replace("ret", "rett"), "sm_100a"),
        (PTX + other[other.index(".visible") :], "sm_100a"),
    ):
        assert usage(text, "k", arch) is None


def test_starting_does_not_wait(programs: Programs, monkeypatch: pytest.MonkeyPatch) -> None:
    release, seen = threading.Event(), []

    def waiting(name: str) -> list[Path]:
        seen.append(release.wait(20))
        return []

    monkeypatch.setattr(assembly, "tools", waiting)
    start_assembling(PTX, "k", "sm_100a")
    assert seen == []
    release.set()
    for _ in range(2):
        with pytest.raises(NoPrediction, match="ptxas is missing"):
            assembled(PTX, "k", "sm_100a")
    assert seen == [True, True]  # ptxas and nvdisasm, once


def test_text_that_is_no_ptx_has_no_machine_code(programs: Programs) -> None:
    start_assembling("\x01", "k", "sm_100a")
    with pytest.raises(NoPrediction, match="unexpected character"):
        assembled("\x01", "k", "sm_100a")
    assert programs == []


def test_many_kernels_are_assembled_one_at_a_time(programs: Programs) -> None:
    texts = [f"{PTX}.global .u32 v{number};\n" for number in range(6)]
    before = threading.active_count()
    for text in texts:
        start_assembling(text, "k", "sm_100a")
        assert threading.active_count() <= before + 1
    assert all(assembled(text, "k", "sm_100a").instructions for text in texts)
    assert len(programs) == 2 * len(texts)


def test_the_machine_code_of_each_statement_has_its_place(tmp_path: Path) -> None:
    ptx = f"""{HEADER}.file 1 "x.cu"
.section .debug_x {{ .b8 1 }}
.global .u64 here[1] = {{1}}; .visible .entry k(.param .u64 p) {{
  .loc 1 70 0
  .reg .b32 %r<4>; .reg .b64 %d<2>; ld.param.u64
  %d1, [p]; .loc 1 71 0 ld.global.u32 %r1, [%d1];
  {{ add.u32 %r2, %r1, %r1; }} L:
  st.global.u32 [%d1], %r2; ret; }}"""
    text = located(ptx)
    places = [int(line.split()[2]) for line in text.split("\n") if line.startswith(".loc")]
    words = [ptx[place:].split(None, 1)[0] for place in places]
    assert words == ["ld.param.u64", "ld.global.u32", "add.u32", "st.global.u32", "ret;"]
    (tmp_path / "k.ptx").write_text(text)
    ptxas = shutil.which("ptxas") or str(tools.tools("ptxas")[0])
    command = [ptxas, "-arch=sm_100a", "-lineinfo", str(tmp_path / "k.ptx"), "-o", "/dev/null"]
    assert subprocess.run(command).returncode == 0
