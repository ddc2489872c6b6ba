"""Machine code is made once, beside what its process does meanwhile."""

import threading
from pathlib import Path

import pytest
from model_kernels import MISSING

from nvfp4.model import assembly, tools
from nvfp4.model.assembly import assembled, start_assembling, usage
from nvfp4.model.gpu import NoPrediction

PTX = ".version 8.8\n.target sm_100a\n.address_size 64\n.visible .entry k(.param .u64 p) { ret; }\n"
Programs = list[str]


@pytest.fixture
def programs(monkeypatch: pytest.MonkeyPatch) -> Programs:
    """The programs that are run, in order."""
    run: Programs = []
    ran = tools.ran

    def noted(words: list[str]) -> str | None:
        run.append(Path(words[0]).name)
        return ran(words)

    monkeypatch.setattr(assembly, "ran", noted)
    assembly._outcome.cache_clear()
    assembly._cubin.cache_clear()
    return run


@pytest.mark.skipif(MISSING, reason="there is no ptxas or no nvdisasm")
def test_what_was_started_is_waited_for_and_made_once(programs: Programs) -> None:
    start_assembling(PTX, "k", "sm_100a")
    start_assembling(PTX, "k", "sm_100a")
    assert assembled(PTX, "k", "sm_100a").instructions
    assert assembled(PTX, "k", "sm_100a").instructions
    assert programs == ["ptxas", "nvdisasm"]


@pytest.mark.skipif(MISSING, reason="there is no ptxas or no nvdisasm")
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


@pytest.mark.skipif(MISSING, reason="there is no ptxas or no nvdisasm")
def test_many_kernels_are_assembled_one_at_a_time(programs: Programs) -> None:
    texts = [f"{PTX}.global .u32 v{number};\n" for number in range(6)]
    before = threading.active_count()
    for text in texts:
        start_assembling(text, "k", "sm_100a")
        assert threading.active_count() <= before + 1
    assert all(assembled(text, "k", "sm_100a").instructions for text in texts)
    assert len(programs) == 2 * len(texts)
