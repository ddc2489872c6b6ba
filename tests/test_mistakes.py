"""Mistakes are found by parsing, and nothing that would work is taken for one."""

from __future__ import annotations

import pytest
from bot import root
from corpus import load

from nvfp4.cli.judging.mistakes import first_mistake, longest_parsed_bytes
from nvfp4.cli.judging.warnings import warnings_before

legal = {
    "assigned": "custom_kernel = f",
    "imported": "from x import custom_kernel",
    "imported under this name": "import a.b as custom_kernel",
    "imported with everything": "from x import *",
    "in a branch": "if f:\n    def custom_kernel(): pass",
    "in a try": "try:\n    import x\nexcept ImportError:\n    def custom_kernel(data): return 1",
    "decorated": "@wrap\ndef custom_kernel(a, b): pass",
    "decorated, async and without a parameter": "@wrap\nasync def custom_kernel(): pass",
    "a class": "class custom_kernel: pass",
    "an object of a class": "class K:\n    def __call__(self, d): return d\ncustom_kernel = K()",
    "a lambda": "custom_kernel = lambda data: data[6]",
    "a walrus": "(custom_kernel := f)",
    "a walrus in a comprehension": "[custom_kernel := f for f in fs]",
    "a walrus in a default": "def f(x=(custom_kernel := g)): pass",
    "a walrus in a class": "class A(metaclass=(custom_kernel := type)): pass",
    "a loop": "for custom_kernel in (f,): pass",
    "a with": "with x as custom_kernel: pass",
    "unpacked": "a, (b, *custom_kernel) = f",
    "matched": "match x:\n    case {'a': custom_kernel}: pass",
    "matched rest": "match x:\n    case {**custom_kernel}: pass",
    "a global of a function": "def f():\n    global custom_kernel\n    custom_kernel = 1\nf()",
    "a global of a class": "class A:\n    global custom_kernel\n    def custom_kernel(d): return d",
    "executed": "exec(text)",
    "put into globals": "globals()['custom' + '_kernel'] = f",
    "put into the module": "import sys\nsetattr(sys.modules[__name__], name, f)",
    "found by the module's __getattr__": "def __getattr__(name): return f",
    "put into itself": "import submission\nsubmission.custom_kernel = f",
    "named in a string": "export(f, 'custom_kernel')",
    "any number of arguments": "def custom_kernel(*data): return data[0]",
    "defaults": "def custom_kernel(data, tile=3, *, warps=4): return data",
    "positional only": "def custom_kernel(data, /): return data",
    "defined twice": "def custom_kernel(): pass\ndef custom_kernel(data): return data",
    "bound anew": "def custom_kernel(): pass\ncustom_kernel = wrap(custom_kernel)",
    "with other code": "def custom_kernel(): pass\ncustom_kernel.__code__ = f.__code__",
    "otherwise than as a program": (
        "if __name__ == '__main__':\n    pass\nelse:\n    def custom_kernel(d): return d"
    ),
    "raises": "def custom_kernel(data): raise NotImplementedError",
    "runs for ever": "def custom_kernel(data):\n    while True: pass",
    "nested too deep to parse": "-" * 100_000 + "1",
}


@pytest.mark.parametrize("name", legal)
def test_what_may_work_is_no_mistake(name: str) -> None:
    assert first_mistake("submission.py", legal[name].encode()) is None


@pytest.mark.parametrize(
    "folder",
    ["nvfp4/selftest/honest", "nvfp4/selftest/cheats", "tests/field", "tests/kernels"],
)
def test_the_submissions_of_the_corpus_have_none(folder: str) -> None:
    inner = [path for path in (root / folder).iterdir() if path.is_dir()]
    cases = [case for each in (root / folder, *inner) for case in load(each)]
    cases = [case for case in cases if "def custom_kernel(" in case.source]
    assert len(cases) >= 7
    for case in cases:
        found = first_mistake(f"{case.name}.py", case.source.encode())
        if found is None:
            continue
        # Some cheats do their harm and return nothing.
        harmless = not folder.endswith("cheats") or (
            found.message != "custom_kernel returns nothing"
        )
        assert not harmless, found


def test_a_mistake_has_place_line_caret_and_hint() -> None:
    found = first_mistake("mine.py", b"x = 1\r\ndef customkernel(data): return data\r\n")
    assert found is not None
    assert found.text == (
        "mine.py:2: it defines no function custom_kernel(data)\n"
        "     2 | def customkernel(data): return data\n"
        "hint: did you mean custom_kernel? It is called customkernel here"
    )
    found = first_mistake("mine.py", 'x = ("日本" y)'.encode())
    assert found is not None
    assert (found.code, found.line, found.column) == ("syntax", 1, 6)
    assert found.text.splitlines()[1:] == ['     1 | x = ("日本" y)', "       |      ^"]


def test_escape_sequences_of_a_line_are_shown_as_escapes() -> None:
    found = first_mistake("mine.py", b"x = '\x1b[2J' y")
    assert found is not None
    assert "\x1b" not in found.text
    assert r"\x1b[2J" in found.text


def test_a_huge_file_is_left_to_the_import() -> None:
    assert first_mistake("mine.py", b"(" + b" " * longest_parsed_bytes) is None


directive = b"#!POPCORN leaderboard %s\n#!POPCORN gpu NVIDIA\nx = 1\n#!POPCORN leaderboard late\n"


@pytest.mark.parametrize(
    ("content", "warns"),
    [
        (directive % b"nvfp4_gemv", False),
        (directive % b"nvfp4_gemm", True),
        (directive % b"nvfp4_gemm nvfp4_gemv", False),
        (b"#!popcorn leaderboard other", True),
        (b"x = 1\n#!POPCORN leaderboard other", False),
        (b"", False),
    ],
)
def test_a_directive_for_another_leaderboard_warns(content: bytes, warns: bool) -> None:
    found = warnings_before(content)
    assert [each.code for each in found] == (["other_leaderboard"] if warns else [])
