"""Messages name the line that an instruction was compiled from, as `.file` and `.loc` give it."""

import os
from pathlib import Path

import numpy as np
import pytest
from ptx_harness import MINE, run

from nvfp4.emulator import errors
from nvfp4.records import source
from nvfp4.records.source import SourceLine, SourceLines, shown

LIBRARY = "/opt/lib/python3.12/site-packages/cutlass/pipeline/sm90.py"
PAST_THE_END = "ld.global.u32 %r5, [%d0+36];"


def words(n: int = 40) -> np.ndarray:
    return np.arange(n, dtype=np.uint32)


@pytest.fixture
def python(tmp_path: Path) -> Path:
    path = tmp_path / "kernel.py"
    path.write_text("".join(f"    x{n} = load({n})\n" for n in range(1, 100)))
    return path


def fault(body: str, *files: Path | str) -> errors.EmulatorError:
    """What a body raises that reads past its buffer; the files get the numbers 1, 2, ..."""
    listed = "".join(f'\n.file {n} "{path}"' for n, path in enumerate(files, 1))
    with pytest.raises(errors.EmulatorError) as caught:
        run(f"{MINE}\n{body}", words(), before=listed)
    return caught.value


def places(text: str) -> list[str]:
    """A message's lines behind its first, the kernel's left out."""
    return [line for line in text.splitlines()[1:] if "in kernel" not in line]


def test_a_message_reads_like_a_compilers(python: Path) -> None:
    lines = str(fault(f".loc 1 57 11\n{PAST_THE_END}", python)).splitlines()
    assert lines[0].startswith(f"{python}:57:12: error: read of 4 bytes outside every tensor, ")
    assert lines[0].endswith("0 bytes past the end of a0 (160 bytes) [out_of_bounds]")
    assert lines[1:] == [
        "    57 | x57 = load(57)",
        "       |        ^",
        "  in kernel k, CTA (0, 0, 0) of (1, 1, 1), thread (31, 0, 0) of (32, 1, 1)",
    ]


def test_the_place_is_there_for_programs(python: Path) -> None:
    where = fault(f".loc 1 57 11\n{PAST_THE_END}", python).where
    assert where is not None
    assert where.user is not None
    assert (where.user.file, where.user.line, where.user.column) == (str(python), 57, 12)
    assert where.user.text == "x57 = load(57)"


def test_a_hint_comes_last(python: Path) -> None:
    error = fault(".loc 1 3 4\ntex.2d.v4.f32.f32 %r1, %r2;", python)
    assert str(error).startswith(f"{python}:3:5: error: ")
    assert str(error).splitlines()[-1].startswith("  hint: ")


def test_without_line_information_there_is_the_ptx_line_only() -> None:
    where = fault(PAST_THE_END).where
    assert where is not None
    assert where.source is where.user is None
    assert places(str(fault(PAST_THE_END))) == [f"  PTX line {where.line}: {PAST_THE_END[:-1]}"]


def test_a_file_that_is_gone_is_named_all_the_same() -> None:
    error = fault(f".loc 1 7 0\n{PAST_THE_END}", "/nowhere/gone.py")
    assert str(error).startswith("/nowhere/gone.py:7: error: ")


def test_a_source_holds_until_the_next(python: Path) -> None:
    body = f".loc 1 5 4\nadd.u32 %r6, %r0, 1;\n{PAST_THE_END}\n.loc 1 6 4\nadd.u32 %r6, %r0, 1;"
    assert ":5:5: error: " in str(fault(body, python))


def test_files_may_be_listed_behind_the_code() -> None:
    text = '\n.loc 2 9 3\nret;\n.file 1 "a.cu"\n.file 2 "b.cu", 1700000000, 99\n'
    assert SourceLines(text).at(3) == SourceLine("b.cu", 9, 3)


def test_a_function_begins_without_a_source() -> None:
    text = '.file 1 "a.cu"\n.func f()\n{\n.loc 1 9 3\nret;\n}\n.visible .entry k()\n{\nret;\n}'
    sources = SourceLines(text)
    assert sources.at(5) == SourceLine("a.cu", 9, 3)
    assert sources.at(9) is None


@pytest.mark.parametrize(
    "place", ["1 0 0", "1 1 0", "3 5 5"], ids=["line 0", "a whole function", "a file nobody lists"]
)
def test_what_comes_from_no_line_is_near_the_last_one(place: str, python: Path) -> None:
    error = fault(f".loc 1 4 4\nadd.u32 %r6, %r0, 1;\n.loc {place}\n{PAST_THE_END}", python)
    assert str(error).startswith(f"near {python}:4: error: ")


def test_without_columns_a_whole_function_is_told_by_its_first_line(tmp_path: Path) -> None:
    path = tmp_path / "old.py"
    path.write_text("@cute.jit\ndef f():\n    x = load()\n")
    text = "".join(f".loc 1 {line} 0\nret;\n" for line in (1, 3, 1, 2))
    sources = SourceLines(f'.file 1 "{path}"\n{text}')
    assert [str(sources.at(line)) for line in (2, 4, 6, 8)] == [
        f"{path}:1",
        f"{path}:3",
        f"near {path}:3",
        f"near {path}:3",
    ]


def test_before_the_first_line_there_is_none_to_be_near() -> None:
    sources = SourceLines('.file 1 "a.py"\n.loc 1 0 0\n.loc 1 3 0\n')
    assert sources.at(2) is None
    assert sources.at(3) == SourceLine("a.py", 3)


def test_columns_count_from_1() -> None:
    text = '.file 1 "a.cu"\n.file 2 "b.py"\n.loc 1 4 7\n.loc 2 4 7\n.loc 1 4 0'
    found = [SourceLines(text).at(line) for line in (3, 4, 5)]
    assert [each.column if each else None for each in found] == [7, 8, 0]


def test_lines_inside_inline_assembly_are_not_those_of_the_file(python: Path) -> None:
    """NVVM counts them from the statement on; the text may come from anywhere."""
    asm = """// begin inline asm
    { .reg .b64 t;
    .loc 1 43 4
    add.u64 t, %d0, 36;
    .loc 1 44 4
    ld.global.u32 %r5, [t]; }
    // end inline asm"""
    assert ":41:5: error: " in str(fault(f".loc 1 41 4\n{asm}", python))
    after = asm.replace("36", "0") + f"\n{PAST_THE_END}"
    assert ":41:5: error: " in str(fault(f".loc 1 41 4\n{after}", python))


def test_a_chain_of_inlined_calls_is_told(tmp_path: Path) -> None:
    code = tmp_path / "k.cu"
    code.write_text("".join(f"line {n};\n" for n in range(1, 100)))
    body = f""".loc 1 20 3, function_name $info0, inlined_at 1 50 7
    add.u32 %r6, %r0, 1;
    .loc 1 10 5, function_name $info1+4, inlined_at 1 20 3
    {PAST_THE_END}"""
    lines = str(fault(body, code)).splitlines()
    assert lines[0].startswith(f"{code}:10:5: error: ")
    assert lines[3:5] == [
        f"  called from {code}:20:3: line 20;",
        f"  called from {code}:50:7: line 50;",
    ]


def test_the_innermost_line_of_the_users_is_named_not_the_librarys(python: Path) -> None:
    body = f""".loc 1 33 8
    .loc 2 120 8, function_name $info0, inlined_at 1 33 8
    {PAST_THE_END}"""
    assert str(fault(body, python, LIBRARY)).startswith(f"{python}:33:9: error: ")


def test_a_line_of_a_library_alone_is_said_to_be_one() -> None:
    assert places(str(fault(f".loc 1 120 8\n{PAST_THE_END}", LIBRARY)))[0] == (
        "  cutlass/pipeline/sm90.py:120:9: in a library; the line that called it is not known"
    )


@pytest.mark.parametrize(
    ("path", "library"),
    [
        (LIBRARY, True),
        ("/x/nvidia_cutlass_dsl/dsl_packages/cutlass/cute/core.py", True),
        ("/usr/local/cuda-13.0/bin/../targets/x86_64-linux/include/cuda_fp16.hpp", True),
        ("/home/user/cutlass/include/cute/tensor.hpp", True),
        ("/home/user/cutlass/submission.py", False),
        ("/home/user/project/include/kernel.cuh", False),
    ],
)
def test_libraries_are_told_from_the_users_files(path: str, library: bool) -> None:
    assert source.is_library(path) == library


def test_a_line_that_is_its_own_caller_ends() -> None:
    loc = ".loc 1 5 1, function_name $f, inlined_at 1 5 1\n"
    found = SourceLines('.file 1 "a.cu"\n' + 1000 * loc).at(900)
    assert found is not None
    assert len(list(found.chain())) <= 32


def test_a_copy_is_called_by_the_name_given_to_it(python: Path) -> None:
    source.show_as(os.fspath(python), "submission.py")
    error = fault(f".loc 1 8 4\n{PAST_THE_END}", python)
    assert str(error).startswith("submission.py:8:5: error: ")


def test_a_file_below_the_working_directory_is_named_from_there(
    python: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(python.parent)
    assert shown(str(python)) == "kernel.py"
    assert shown(str(python.parent.parent / "kernel.py")) != "kernel.py"


def test_findings_of_one_source_line_are_one(python: Path) -> None:
    listed = f'.file 1 "{python}"\n.shared .align 16 .b8 s[1024];'
    branch = "ld.shared.u32 %r5, [%r10]; setp.eq.u32 %p1, %r5, 0; @%p1 bra N{0}; N{0}:"
    one, two, three = (branch.format(i) for i in range(3))
    body = f"mov.u32 %r10, s;\n.loc 1 70 4\n{one}\n{two}\n.loc 1 71 4\n{three}"
    found = run(body, words(), before=listed).findings
    assert [(each.code, each.file, each.line) for each in found] == [
        ("unwritten_shared", str(python), 70),
        ("unwritten_shared", str(python), 71),
    ]
    first, second = (each.count for each in found)
    assert first and second and first == 2 * second


def test_findings_without_a_source_are_kept_apart_by_ptx_line() -> None:
    body = """mov.u32 %r10, s; ld.shared.u32 %r5, [%r10]; setp.eq.u32 %p1, %r5, 0;
    @%p1 bra A;
    A: @%p1 bra B;
    B:"""
    found = run(body, words(), before=".shared .align 16 .b8 s[1024];").findings
    assert [(each.file, each.line) for each in found] == [(None, None)] * 2


def test_a_deadlock_names_the_lines_where_threads_wait(python: Path) -> None:
    body = """.shared .b64 m; mov.u32 %r10, m; setp.eq.u32 %p1, %r0, 0;
    @%p1 mbarrier.init.shared.b64 [%r10], 2; bar.sync 0;
    .loc 1 12 4
    W: mbarrier.try_wait.parity.shared.b64 %p2, [%r10], 0; @!%p2 bra W;"""
    error = fault(body, python)
    assert isinstance(error, errors.EmulatorError)
    assert f"{python}:12:5" in str(error)


def test_where_a_text_is_given_no_file_is_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever writes PTX names the files of its lines: a pipe would be waited for."""
    monkeypatch.setattr(source, "_given", set())
    monkeypatch.setattr(source, "_names", {})
    other = tmp_path / "other.py"
    other.write_text("secret\n")
    assert SourceLine(str(other), 1).text == "secret"
    os.mkfifo(tmp_path / "pipe.py")
    source.show_as(str(tmp_path / "mine.py"), "mine.py", "first\nsecond\n")
    assert SourceLine(str(tmp_path / "mine.py"), 2).text == "second"
    assert SourceLine(str(tmp_path / "pipe.py"), 1).text == ""
    assert SourceLine(str(other), 1).raw == ""
