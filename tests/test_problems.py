"""Problems of the user's: read from a folder, and judged as that folder says."""

import gc
import importlib
import json
import os
import re
import sys
import weakref
from collections import namedtuple
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from bot import root
from hypothesis import given
from hypothesis import strategies as st
from kept import invoke, is_error, judged, refused, succeeds
from problem_folder import REFERENCE, RIGHT, TASK, make_problem

from nvfp4.cli.errors import SetupError
from nvfp4.cli.history.judgements import keep
from nvfp4.cli.problem import add_problems, data_file, find_problem, known_problems, load_problem
from nvfp4.cli.verdict import Submission, TestResult, Verdict
from nvfp4.contract import tree as trees
from nvfp4.records.referee_messages import Check
from nvfp4.referee.__main__ import Service
from nvfp4.referee.problem import FolderProblem, ProblemFailed

without_a_gpu = pytest.mark.skipif(
    torch.cuda.is_available(), reason="the verdicts are those of the emulated GPU"
)

# The tree

shapes = st.lists(st.integers(0, 4), max_size=3)
dtypes = st.sampled_from([torch.float16, torch.float32, torch.int64, torch.uint8, torch.bool])
tensors = st.builds(lambda shape, dtype: torch.zeros(shape).to(dtype), shapes, dtypes)
nested = st.recursive(
    tensors | st.integers(-5, 5) | st.text(max_size=3) | st.none() | st.booleans(),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.lists(inner, max_size=3).map(tuple)
        | st.dictionaries(st.text(max_size=2), inner, max_size=3)
    ),
    max_leaves=6,
)


def same(one: object, other: object) -> bool:
    if isinstance(one, torch.Tensor) and isinstance(other, torch.Tensor):
        return (
            one.dtype == other.dtype and one.stride() == other.stride() and torch.equal(one, other)
        )
    if isinstance(one, (list, tuple)) and type(one) is type(other):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, dict) and isinstance(other, dict):
        return list(one) == list(other) and all(same(one[key], other[key]) for key in one)
    return type(one) is type(other) and one == other


@given(nested)
def test_data_come_back_the_same_from_their_record_and_bytes(data: object) -> None:
    tree, storages = trees.flatten(data)
    again = trees.tree_of(json.loads(json.dumps(tree.to_plain())))
    assert again == tree
    assert same(trees.build(again, [each.clone() for each in storages]), data)


@given(nested)
def test_packed_data_hold_the_same_elements_one_after_the_other(data: object) -> None:
    tree, _ = trees.flatten(data)
    small = trees.packed(tree)
    raw = torch.zeros(trees.places(small)[-1], dtype=torch.uint8)
    made, _ = trees.flatten(trees.build(small, trees.parts(small, raw)))
    assert [each.shape for each in made.leaves] == [each.shape for each in tree.leaves]
    assert trees.is_packed(small, trees.places(small)[-1])
    assert not trees.is_packed(small, trees.places(small)[-1] - 1)


def test_views_and_aliases_stay_what_they_are() -> None:
    whole = torch.arange(12.0).reshape(3, 4)
    tree, storages = trees.flatten((whole, whole.T, whole[1:, ::2], {"again": whole}))
    assert len(storages) == 1
    first, turned, part, named = trees.build(tree, [storages[0].clone()])
    first[1, 2] = 99
    assert turned[2, 1] == part[0, 1] == named["again"][1, 2] == 99
    assert whole[1, 2] == 6


@pytest.mark.parametrize("name", ["b", "def", "a", "_b", "b.c", 5, None])
def test_a_named_tuple_keeps_its_names(name: Any) -> None:
    pair = namedtuple("pair", "a b")
    tree, storages = trees.flatten(pair(torch.ones(2), 3))
    record = tree.to_plain()
    record["skeleton"]["named"][1][0] = name
    if name == "b":
        made = trees.build(trees.tree_of(record), storages)
        assert (made.a.tolist(), made.b, made[1]) == ([1, 1], 3, 3)
    else:
        with pytest.raises(trees.TreeError):
            trees.tree_of(record)


_leaf = {"path": "x", "storage": 0, "dtype": "float32", "shape": [4], "strides": [1], "offset": 0}


@pytest.mark.parametrize(
    "changes",
    [
        *({"shape": [5]}, {"offset": 1}, {"strides": [-1]}, {"strides": []}, {"storage": 1}),
        *({"dtype": "nn"}, {"dtype": "qint32"}, {"shape": [2**60]}, {"shape": [True]}),
        {"shape": [2**40, 2**40, 0], "strides": [2**40, 1, 1]},
        {"shape": [1] * 65, "strides": [1] * 65},
    ],
)
def test_a_record_that_describes_no_data_is_refused(changes: dict[str, object]) -> None:
    record = {
        "skeleton": {"leaf": 0},
        "leaves": [{**_leaf, "dimensions": [], **changes}],
        "storages": [{"nbytes": 16, "device": "cuda"}],
    }
    with pytest.raises(trees.TreeError):
        trees.tree_of(record)


# The folder


def test_a_folder_says_what_is_judged(tmp_path: Path) -> None:
    with_starter = TASK.replace("@SUBMISSION@", "task.py")  # which must not be judged instead
    problem = load_problem(make_problem(tmp_path, yml=with_starter))
    assert problem.name == "scaled_v2"
    assert problem.ranking_by == "last"
    assert problem.tests[0] == "rows: 4; sizes: [3, 5]; kind: normal; seed: 1"
    assert set(problem.files) == {"task.py", "utils.py", "reference.py", "eval.py"}
    assert problem.inputs == ("contest",)
    assert problem.case("1", problem.tests) == problem.tests[1]
    assert problem.case("rows=2,sizes=[1, 2],kind=normal", problem.tests) == (
        "rows: 2; sizes: [1, 2]; kind: normal; seed: 1"
    )


@pytest.mark.parametrize(
    ("took_s", "said"),
    [
        ((None, None), ""),
        ((2.0, 4.0), "tests ~20 s, benchmarks ~20 s"),
        ((0.0, 0.0), "tests ~8 s, benchmarks ~8 s"),
        ((100.0, 200.0), "1 of 2 tests in time, 1 of 1 benchmarks sampled"),
    ],
)
def test_the_list_says_what_there_is_time_for_by_what_was_judged(
    tmp_path: Path, data: Path, took_s: tuple[float | None, ...], said: str
) -> None:
    own = make_problem(tmp_path)
    add_problems(tmp_path)
    verdict = Verdict(Submission("mine.py", "0" * 64), problem="scaled_v2")
    verdict.tests = [
        TestResult(line, "pass", emulated=True, elapsed_s=each)
        for line, each in zip(load_problem(own).tests, took_s, strict=True)
    ]
    keep(verdict, b"")
    listed = invoke("problems").output.splitlines()
    (row,) = (line for line in listed if line.startswith("scaled_v2"))
    assert row.partition("last")[2].strip() == said


def test_a_list_of_problems_that_is_no_plain_file_or_nested_without_end_is_empty(
    data: Path,
) -> None:
    known = data_file("problems.json")
    known.parent.mkdir(parents=True)
    os.mkfifo(known)
    assert set(known_problems()) == {"nvfp4_gemv"}
    known.unlink()
    known.write_text("[" * 99999)
    assert set(known_problems()) == {"nvfp4_gemv"}


def test_a_leaderboard_that_a_file_names_decides(
    tmp_path: Path, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = make_problem(tmp_path)
    assert list(add_problems(tmp_path)) == ["scaled_v2"]
    assert set(known_problems()) == {"nvfp4_gemv", "scaled_v2"}
    mine = tmp_path / "mine.py"
    mine.write_text(f"#!POPCORN leaderboard scaled_v2\n{RIGHT}")
    assert find_problem("", mine).folder == own
    mine.write_text(f"#!POPCORN leaderboards nowhere\n{RIGHT}")
    assert "names the leaderboard nowhere, which is unknown" in refused("check", str(mine))
    mine.write_text(RIGHT)
    assert find_problem("", mine).is_bundled
    assert find_problem("scaled_v2", mine).folder == own
    monkeypatch.chdir(own)
    assert find_problem("", mine).folder == own


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"yml": "tests: ["}, "cannot read"),
        ({"yml": "a: &a [1, 1]\ntests: [*a, *a]"}, "has aliases"),
        ({"yml": "tests: 3"}, "does not hold files and tests"),
        ({"yml": re.sub("(?s)tests:.*bench", "tests: []\nbench", TASK)}, "has no tests"),
        (
            {"yml": f"{TASK}multi_gpu: true"},
            "for several GPUs (multi_gpu), and nvfp4 judges on one",
        ),
        ({"yml": f"{TASK}ranking_by: median"}, "ranking_by 'median', not last, mean or geom"),
        ({"yml": TASK.replace("../utils.py", "../none.py")}, "names ../none.py"),
        ({"yml": TASK.replace('"name": "reference.py"', '"name": "other.py"')}, "no reference.py"),
        ({"yml": TASK.replace('"name": "task.py"', '"name": "\\ud83d.py"')}, "no name of a file"),
        ({"yml": TASK.replace('"name": "task.py"', '"name": ""')}, "'' is no name of a file"),
        ({"yml": TASK.replace('"rows": 4', '"columns": 4')}, "missing a required argument: 'rows'"),
        ({"reference": "raise OSError('no luck')"}, "reference.py raised OSError: no luck"),
        ({"reference": REFERENCE.replace("return pairs,", "return 1j,")}, "does not hand on"),
        ({"reference": "x", "extras": f"a = {'-' * 99999}1"}, "NameError"),
        ({"reference": "def ref_kernel(data): pass"}, "defines no generate_input"),
    ],
)
def test_a_bad_folder_gets_one_sentence_and_exit_2(
    tmp_path: Path, changes: dict[str, str], why: str
) -> None:
    own, mine = make_problem(tmp_path, **changes), tmp_path / "mine.py"
    mine.write_text(RIGHT)
    output = refused("test", str(mine), "--problem", str(own))
    assert is_error(output), output
    assert why in output


@pytest.mark.parametrize("command", ["bench", "explain"])
def test_a_problem_without_benchmarks_gets_one_sentence_and_exit_2(
    tmp_path: Path, command: str
) -> None:
    own = make_problem(tmp_path, yml=TASK.partition("benchmarks:")[0])
    (tmp_path / "mine.py").write_text(RIGHT)
    output = refused(command, str(tmp_path / "mine.py"), "--problem", str(own))
    assert "scaled_v2 has no benchmarks" in output


def test_a_checkout_of_pipes_devices_loops_and_names_without_end_is_listed(
    tmp_path: Path, data: Path
) -> None:
    checkout, long, digits = tmp_path / "checkout", "a" * 5000, "f" * 6000
    colons = f"[1{':0' * 180}.5, 1{':0' * 200_000}]"
    texts = {
        "long_source": TASK.replace("../utils.py", long),
        "long_template": f"{TASK}templates: {{CUDA: {long}}}",
        "long_number": TASK.replace("4", f"0x{digits}"),
        "fast": TASK.replace("64", f"1{'0' * 400}"),
        "slow": TASK,
        "colons": f"{TASK}note: {colons}",
    }
    for name in ("pipe", "device", *texts):
        (checkout / name).mkdir(parents=True)
    os.mkfifo(checkout / "problems.yaml")
    (checkout / "colons.yaml").write_text(f"note: {colons}")
    os.mkfifo(checkout / "pipe" / "task.yml")
    (checkout / "device" / "task.yml").symlink_to("/dev/zero")
    (checkout / "loop").symlink_to("loop")
    directories = {"lists.yaml": "loop/x", "nul.yaml": r"a\0b", "names.yaml": "fast"}
    for name, at in directories.items():
        text = rf'problems: [{{name: "\e[2J\ud800", directory: "{at}"}}]'
        (checkout / name).write_text(text)
    for name, text in texts.items():
        (checkout / name / "task.yml").write_text(text)
        (checkout / name / "reference.py").touch()
        speed = {"fast": f"1{'0' * 400}", "slow": "1e-320"}.get(name, "1.0")
        (checkout / name / "extras.py").write_text(f"emulated_per_s = {speed}")
    succeeds("problems", "add", str(checkout))
    listed = json.loads(invoke("problems", "--json").output)["problems"]
    errors = {each["name"]: each["error"] for each in listed}
    assert "no regular file" in errors["pipe"]
    assert "no regular file" in errors["device"]
    assert "(4300 digits)" in errors["long_number"]
    assert "names task.py" in errors["colons"]
    assert len(errors) == 9
    (checkout / ("a/" * 450)).mkdir(parents=True)
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(400)
    with pytest.raises(SetupError, match="nested too deep"):
        add_problems(checkout)
    sys.setrecursionlimit(before)


def test_a_checkout_with_a_path_that_no_system_takes_gets_one_sentence(cwd: Path) -> None:
    for _ in range(25):
        Path("n" * 200).mkdir()
        os.chdir("n" * 200)
    with pytest.raises(SetupError, match="File name too long"):
        add_problems(cwd)


@pytest.mark.parametrize(
    "command", ["check mine.py", "check other.py", "new -o new.py --problem ."]
)
def test_a_file_of_no_end_gets_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    monkeypatch.chdir(make_problem(tmp_path))
    for name in ("mine.py", "submission.py", *["task.yml"] * ("other" in command)):
        os.truncate(os.open(name, os.O_CREAT | os.O_RDWR), 1 << 43)
    assert "has more than" in refused(*command.split())


def test_a_problem_that_is_not_there_is_told_with_those_that_are() -> None:
    output = refused("eval", "mine.py", "--problem", "nowhere")
    assert "there is no problem 'nowhere'" in output
    assert "nvfp4_gemv" in output


def test_its_own_starter_is_the_template(tmp_path: Path) -> None:
    own, mine = make_problem(tmp_path, submission=RIGHT), tmp_path / "new.py"
    assert "KIND and --from do" in invoke("new", "cute", "--problem", str(own)).output
    succeeds("new", "--problem", str(own), "-o", str(mine))
    assert mine.read_text() == f"#!POPCORN leaderboard scaled_v2\n\n{RIGHT}"


# Verdicts


VARIED = """
import torch
from utils import make_match_reference

def custom_kernel(data):
    kind, scale, x, other = data
    return [scale * (x[x > 0] if kind == "count" else x) + torch.where(x[0] > 0, other, 0)]

def generate_input(kind, seed):
    draw = torch.Generator(device="cuda").manual_seed(5 if kind == "same" else seed)
    size = (1 + seed % 97) * 5000 if kind == "length" else 64
    scale = torch.rand(1, device="cuda", generator=draw).item() if kind == "scale" else 2.0
    x, other = torch.randn(size, device="cuda", generator=draw), torch.empty(1, device="cuda")
    x[0] = float(kind == "unset" and seed > 1)
    if x[0]: other.fill_(seed)
    return kind, scale, x, other

ref_kernel = custom_kernel
check_implementation = make_match_reference(ref_kernel)
"""


@without_a_gpu
def test_values_and_sizes_may_depend_on_the_seed_and_inputs_that_do_not_are_marked(
    tmp_path: Path,
) -> None:
    kinds = ["scale", "count", "length", "unset", "same"]
    tests = "".join(f'  - {{"kind": {kind}, "seed": 1}}\n' for kind in kinds)
    yml = f"{TASK.partition('tests:')[0]}tests:\n{tests}"
    own = make_problem(tmp_path, reference=VARIED, yml=yml)
    mine = VARIED.partition("def generate")[0].replace("from utils", "# ")
    found = judged(tmp_path, mine, "test", "--problem", str(own)).content["tests"]
    assert [each["status"] for each in found] == ["pass"] * 5, found
    marks = [each["unverified"] or "" for each in found]
    assert [mark.partition(" in every")[0] for mark in marks] == [
        *[""] * 4,
        "the problem draws the same inputs",
    ]


NESTED = """
import os
for _ in range(1500):
    os.mkdir('a')
    os.chdir('a')
"""
TWICE = "def names(sizes, **others): return ['one'] * (3 * len(sizes) + 1)"
"""What a problem may do and its submissions must not feel."""


@without_a_gpu
def test_a_right_submission_passes_and_its_verdict_names_problem_and_cases(tmp_path: Path) -> None:
    own = make_problem(tmp_path, reference=REFERENCE + NESTED, extras=TWICE)
    found = judged(tmp_path, RIGHT, "test", "--problem", str(own))
    assert found.exit_code == 0, found.output
    assert found.content["problem"] == "scaled_v2"
    assert [each["inputs"] for each in found.content["tests"]] == ["contest", "contest"]
    assert found.content["tests"][1]["case"] == {"rows": "8", "sizes": "[2, 16]", "kind": "normal"}


BODIES: dict[str, dict[str, str]] = {
    "": {
        "right": "return answered(pairs)",
        "writes to another input": "pairs[0][0].zero_()\nreturn found",
        "looks for the referee": (
            'assert "reference" not in sys.modules\n'
            "numbers = filter(str.isdigit, os.listdir('/proc'))\n"
            "names = [open(f'/proc/{number}/cmdline').read() for number in numbers]\n"
            "assert not any('nvfp4.referee' in name for name in names), names\n"
            "return found"
        ),
    },
    "contract.returned": {
        "one tensor of two": "return pairs[0][2]",
        "a part of each": "return [out[:1] for *_, out in pairs]",
        "nothing": "pass",
    },
    "output.mismatch": {
        "another scale": "return [2 * x + y for x, y, _ in pairs]",
        "another dtype": "return [each.half() for each in answered(pairs)]",
        "what the outputs held is added": "for x, y, out in pairs: out += y\nreturn outputs",
        "nothing for some elements": (
            "for x, y, out in pairs: out[1:, 2:] = (3 * x + y)[1:, 2:]\nreturn outputs"
        ),
        "answers from memory": "return kept.setdefault(rows, answered(pairs))",
        "leaves the outputs as they are": "return outputs",
        "returns an input as the output": "return [x for x, *_ in pairs]",
        "zeroes the inputs, of which zero is the right answer": (
            "for each in pairs: [tensor.zero_() for tensor in each]\nreturn outputs"
        ),
        "draws the inputs of the public seeds instead of reading them": (
            'draw = torch.Generator(device="cuda").manual_seed(rows)\n'
            'both = [torch.randn(2, *x.shape, device="cuda", generator=draw) for x in first]\n'
            "return [3 * x + y for x, y in both]"
        ),
        "computes a corner and copies the rest from the first call": (
            "old = kept.setdefault(rows, answered(pairs))\n"
            "for each, (x, y, _) in zip(old, pairs): each[:2, :2] = (3 * x + y)[:2, :2]\n"
            "return old"
        ),
    },
}
"""Bodies of custom_kernel, right and wrong ones and cheats, by the code of the failure."""

NAMED = [(what, code, body) for code, each in BODIES.items() for what, body in each.items()]

SEVERAL = """
import os, sys
import torch

kept = {}


def answered(pairs):
    return [3 * x + y for x, y, _ in pairs]


def custom_kernel(data):
    pairs = data[0]
    rows = len(pairs[0][0])
    outputs, first = [out for *_, out in pairs], [x for x, *_ in pairs]
    return globals()[f"kernel_{rows}"](pairs, rows, answered(pairs), outputs, first)
"""


@pytest.fixture(scope="module")
def verdict(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """That on one submission with all of the bodies; the case says by its rows which is called."""
    folder, source, tests = tmp_path_factory.mktemp("bodies"), SEVERAL, ""
    for rows, (*_, body) in enumerate(NAMED, 3):
        indented = body.replace("\n", "\n    ")
        source += f"\n\ndef kernel_{rows}(pairs, rows, found, outputs, first):\n    {indented}\n"
        tests += f'  - {{"rows": {rows}, "sizes": [3, 5], "kind": "normal", "seed": {rows}}}\n'
    before, _, benchmarks = TASK.partition("tests:\n")
    yml = f"{before}tests:\n{tests}benchmarks:{benchmarks.partition('benchmarks:')[2]}"
    own = make_problem(folder, yml=yml)
    return judged(folder, source, "test", "--problem", str(own)).content


@without_a_gpu
@pytest.mark.parametrize(("what", "code"), [each[:2] for each in NAMED])
def test_a_submission_of_another_problem_passes_or_fails_by_its_code(
    what: str, code: str, verdict: dict[str, Any]
) -> None:
    (found,) = (t for t, each in zip(verdict["tests"], NAMED, strict=True) if each[0] == what)
    assert found["status"] == ("fail" if code else "pass"), found
    assert not code or found["failure"]["code"] == code
    if what == "nothing for some elements":
        count = 2 * int(found["case"]["rows"]) + 1
        assert f"never written: {count} elements, first output[0][0, 0]" in found["message"]
    writes = what == "writes to another input"
    assert [each["code"] for each in found["findings"]] == ["input_changed"] * writes


SHARES = "check_implementation(data, custom_kernel(data))"
KEEPS, CAPTURES = "outputs = [custom_kernel(data) for data in datas]", "g = torch.cuda.CUDAGraph()"
CALLED = f"""
import torch
kept = []
{RIGHT.partition("    for x")[0]}
    found = [options["scale"] * x + y for x, y, _ in pairs]
"""
STATIC = "found = [a.copy_(b) for a, b in zip(kept, found)] or found; kept[:] = found"
SETS = """
import triton, triton.language as tl
@triton.jit
def sets(place):
    tl.store(place, 1.0)
"""


@without_a_gpu
@pytest.mark.parametrize(
    ("own_eval", "body", "code", "findings"),
    [
        (SHARES, "counts.zero_()", None, 1),
        (SHARES, "pairs[0][0].zero_()", "output.mismatch", 0),
        (KEEPS, "counts.zero_()", None, 1),
        (KEEPS, "pairs[0][0].zero_()", "output.mismatch", 1),
        (KEEPS, STATIC, "output.overwritten", 0),
        (KEEPS, f"{STATIC}; pairs[0][2].copy_(found[0])", "output.overwritten", 0),
        (KEEPS, "kept or kept.extend(pairs); found[0] = 3 * kept[0][0] + kept[0][1]",
         "output.mismatch", 0),
        (CAPTURES, "kept or kept.append(found[0].sum().item())", None, 0),
        (CAPTURES, "kept or kept.extend(found); found[0].copy_(kept[0])", "output.mismatch", 0),
        (CAPTURES, "found[0].sum().item()", "contract.not_capturable", 0),
        (CAPTURES, "kept or kept.extend(torch.zeros(99, 1, device='cuda')); sets[1,](kept[0]); "
         "found[0].mul_(kept.pop().add_(1))", "output.mismatch", 0),
    ],
)  # fmt: skip
def test_calls_are_made_as_the_problems_own_eval_makes_them(
    tmp_path: Path, own_eval: str, body: str, code: str | None, findings: int
) -> None:
    yml = TASK.replace('"eval.py", "source": "../utils.py"', '"eval.py", "source": "eval.py"')
    own = make_problem(tmp_path, eval=own_eval, yml=yml)
    source = CALLED.replace("    assert counts", "    #") + f"    {body}\n    return found\n"
    source += SETS * ("sets[" in body)
    command = "bench" if own_eval == KEEPS or "sets[" in body else "test"
    found = judged(tmp_path, source, command, "--problem", str(own))
    (case, *_) = found.content["benchmarks" if command == "bench" else "tests"]
    assert (case["failure"] or {}).get("code") == code, found.output
    assert [each["code"] for each in case["findings"]] == ["input_changed"] * findings


@pytest.mark.parametrize(
    ("name", "sizes", "speed_of_light_us"),
    [
        ("nvfp4_gemm", {"m": 128, "n": 7168, "k": 16384, "l": 1}, 8.994),
        ("nvfp4_gemm", {"m": 128, "n": 4096, "k": 7168, "l": 1}, 2.354),
        ("nvfp4_gemm", {"m": 128, "n": 7168, "k": 2048, "l": 1}, 1.333),
        ("nvfp4_dual_gemm", {"m": 256, "n": 4096, "k": 7168, "l": 1}, 4.708),
        ("nvfp4_dual_gemm", {"m": 512, "n": 4096, "k": 7168, "l": 1}, 8.714),
        ("nvfp4_dual_gemm", {"m": 256, "n": 3072, "k": 4096, "l": 1}, 2.125),
        ("nvfp4_group_gemm", {"m": [192, 320], "n": [3072] * 2, "k": [4096] * 2, "g": 2}, 2.406),
        ("nvfp4_group_gemm", {"m": [128, 384], "n": [4096] * 2, "k": [1536] * 2, "g": 2}, 1.525),
    ],
)
def test_the_siblings_speed_of_light_is_that_of_their_tables(
    name: str, sizes: dict[str, Any], speed_of_light_us: float
) -> None:
    extras = importlib.import_module(f"nvfp4.problems.{name}.extras")
    assert extras.figures(**sizes)["sol_us"] == pytest.approx(speed_of_light_us, rel=5e-4)


def test_the_package_s_extras_are_those_of_a_contest_that_it_knows(tmp_path: Path) -> None:
    own = make_problem(tmp_path)
    listed = own.parents[1] / "mine.yaml"
    listed.write_text(listed.read_text().replace("scaled_v2", "nvfp4_group_gemm"))
    assert b"every group" in load_problem(own).files["extras.py"]
    (own / "extras.py").write_text("names = ()")
    assert load_problem(own).files["extras.py"] == b"names = ()"
    assert load_problem(own.rename(own.with_name(".a b\n"))).name == "_a_b_"


@without_a_gpu
@pytest.mark.parametrize("said", ["exit: problem", "own problem", "it was stopped: limit"])
def test_a_case_that_ends_the_referee_leaves_the_others_judged(tmp_path: Path, said: str) -> None:
    ends = "exit()" if "exit" in said else f"torch.os._exit(torch.os.write(2, b'{said}'))"
    dies = f"    assert rows < 8 or {ends}\n    assert kind =="
    own = make_problem(tmp_path, reference=REFERENCE.replace("    assert kind ==", dies))
    found = judged(tmp_path, RIGHT, "test", "--problem", str(own))
    assert found.exit_code == 3, found.output
    assert [each["status"] for each in found.content["tests"]] == ["pass", "skipped"]
    assert found.content["tests"][1]["failure"]["code"].endswith(said.split()[-1])


slow = """
import os, torch, triton
os.environ.update(TRITON_KERNEL_DUMP="1", TRITON_ALWAYS_COMPILE="1")  # into the home folder
import triton.language as tl
@triton.jit
def scaled(x, y, out, scale, rows, size, steps):
    row, each, total = tl.program_id(0), tl.arange(0, 8), 0.0
    for step in range(steps):
        total = total * 0.5 + tl.load(x + step % 8)
        tl.debug_barrier()
    there = (each < size) & (row < rows)
    kept = scale * tl.load(x + row * size + each, there) + tl.load(y + row + each * rows, there)
    tl.store(out + row * size + each, kept + total * 0.0, there)
def custom_kernel(data):
    for x, y, out in data[0]:
        scaled[(1 << 20,)](x, y, out, data[1]["scale"], *x.shape, 3000, num_warps=1)
    return [out for _, _, out in data[0]]
"""


@without_a_gpu
@pytest.mark.parametrize(("result", "exit_code"), [("x + y + x + x", 3), ("x + y + 2.001 * x", 1)])
def test_a_mismatch_that_the_order_of_a_sum_explains_is_unclear(
    tmp_path: Path, result: str, exit_code: int
) -> None:
    exact = REFERENCE.replace("rtol=1e-4, atol=1e-6", "rtol=0, atol=0")
    own = make_problem(tmp_path, reference=exact)
    wrong = RIGHT.replace('options["scale"] * x + y', result)
    found = judged(tmp_path, wrong, "test", "--problem", str(own), "-x", "--no-log")
    assert found.exit_code == exit_code, found.output
    told = "the order of a sum may be why: the output is at most"
    assert (told in found.output) is (exit_code == 3)


@without_a_gpu
def test_a_benchmark_that_takes_too_long_is_sampled_and_says_so(tmp_path: Path) -> None:
    pytest.importorskip("triton")
    options = ("--problem", str(make_problem(tmp_path)), "--no-log", "--timeout", "50")
    found = judged(tmp_path, slow, "bench", *options)
    assert found.exit_code == 3, found.output
    (benchmark,) = found.content["benchmarks"]
    assert benchmark["failure"]["code"] == "not_judged.too_slow"
    counts = benchmark["emulation"]
    assert 0 < counts["ctas_run"] < counts["ctas_total"] == 1 << 20
    assert "sectors_distinct" not in counts
    assert benchmark["predicted"]["gpu"] == "B200"
    assert re.search(r"sizes \[7\], kind normal +sampled", found.output)
    assert re.search(r"kind normal .*, from some of its thread blocks", found.output)


@without_a_gpu
def test_explain_and_report_are_for_any_problem(tmp_path: Path) -> None:
    own, mine, page = make_problem(tmp_path), tmp_path / "mine.py", tmp_path / "page.html"
    seed = 'device="cuda", generator=torch.Generator("cuda").manual_seed(3)'
    public = f"assert (torch.randn(2, *x.shape, {seed})[0] != x).any()"
    mine.write_text("import torch\n" + RIGHT.replace("assert x", f"{public}\n        assert x"))
    shown = succeeds("explain", str(mine), "--problem", str(own))
    assert "rows 64, sizes [7], kind normal" in shown
    succeeds("report", str(mine), "--problem", str(own), "-o", str(page), "--no-log")
    assert "sizes [7]" in page.read_text(encoding="utf-8")


# What is a problem's own

_of_gemv = re.compile(r"\bsf[ab](_permuted)?\b|\brow 0\b|\bk_multiple\b|\bm, k(, |  and )l\b")


def test_names_of_gemv_stand_in_its_own_folder_alone() -> None:
    general = ("judge", "worker", "gpu", "executor", "contract", "referee", "records", "sandbox")
    found = [
        f"{path.relative_to(root)}: {line.strip()}"
        for folder in general
        for path in sorted((root / "nvfp4" / folder).rglob("*.py"))
        for line in path.read_text(encoding="utf-8").splitlines()
        if _of_gemv.search(line)
    ]
    assert found == []


@pytest.mark.parametrize(
    ("shape", "strides"),
    [((4, 1), (16, 16)), ((1, 1), (1, 12288)), ((3, 1, 1), (1, 5, 7)), ((4, 6, 1), (6, 1, 24))],
)
def test_a_wrong_output_of_any_strides_is_judged(
    shape: tuple[int, ...], strides: tuple[int, ...]
) -> None:
    """The referee ended, and the problem was blamed."""
    problem = FolderProblem.__new__(FolderProblem)
    problem._on_host = lambda tensor: tensor
    output = torch.zeros(16384, dtype=torch.float16).as_strided(shape, strides)
    last = [size - 1 for size in shape]
    output[tuple(last)] = float("nan")
    assert problem.never_written(output) == ""
    output[tuple(last)].view(torch.int16).fill_(-1)
    assert problem.never_written(output) == f"never written: 1 elements, first output{last}"
    assert problem.never_written(torch.arange(9).half(), 0) == ""  # one zero may be a result
    assert problem.never_written(torch.zeros(0), 0x48) == ""


IN_PLACE = """
import torch
def generate_input(beta, seed):
    {makes}
    return torch.randn(4), c, torch.tensor(beta or seed)
def ref_kernel(data): a, c, beta = data; return c.copy_(a + beta * c if beta and {takes_c} else a)
def check_implementation(data, output):
    error = ref_kernel(data).sub_(output); output.zero_(), data[0].zero_()
    return error.abs().max().item() < 1e-5
"""


def problem_of(monkeypatch: pytest.MonkeyPatch, source: str) -> FolderProblem:
    module = ModuleType("reference")
    exec(source, vars(module))
    monkeypatch.setitem(sys.modules, "reference", module)
    monkeypatch.setitem(sys.modules, "utils", module)
    return FolderProblem(lambda tensor: tensor, lambda tensor, device: tensor)


OF_TWO = """
import sys; import torch; from torch import *; from builtins import *
x, e, f4 = arange(1.0, 5), ones(0, 1), lambda x: x.to(uint8).view(torch.float4_e2m1fn_x2)
match_reference = lambda data, out, of, *_: allclose(out, of(data))
def generate_input(): return (x, torch.empty(4))[:{}]
def ref_kernel(data): x, y = data[0], data[-1]; {}
def check_implementation(data, out): x, y = data[0], data[-1]; {}
"""


def test_the_checker_decides(monkeypatch: pytest.MonkeyPatch) -> None:
    for kernel, checker, right, wrong in (
        ("y.copy_(x.mul_(2))", "ref_kernel(data); return allclose(out, y)", "x * 2", "x"),
        ("return x * 2", "x.mul_(3); return allclose(out, ref_kernel(data))", "x * 6", "x * 2"),
        ("return x * 2", "return match_reference(data, out, lambda _: x)", "x", "x * 2"),
        ("return x * 2", "return match_reference(data, out, ref_kernel, 1, 1)", "x * 2", "x"),
        ("return x * 2", "return allclose(out, ref_kernel(data=data))", "x * 2", "x"),
        ("return x * 2", "return len(out) > 3 or sys.exit()", "x", "x[1:].to(torch.uint16)"),
        ("return x, x", "return all(map(allclose, out, ref_kernel(data)))", "(x, x)", "(e, e, x)"),
        ("return {'a': x[:0], 'b': x}", "return True", "dict(b=x, a=e)", "dict(b=e)"),
        ("return f4(x)", "return out.view(uint8)[0] == 1", "f4(x)", "f4(x * 2)"),
        ("return x", "return (out == x).all().numpy()[()], 'd'", "x", "x * 2"),
        ("return x", "return None if allclose(out, x) else 'd'", "x", "x * 2"),
    ):
        problem = problem_of(monkeypatch, OF_TWO.format(1 + ("y" in kernel), kernel, checker))
        drawn, names = problem.draw({}, False), vars(problem._reference)
        assert drawn.noise == {1} & drawn.outputs
        for source, passes in ((right, True), (wrong, False)):
            assert problem.check(drawn, eval(source, names))[0] is passes, kernel
            problem.rounding_explains(drawn, eval(source, names))


def test_rounding_explains_no_other_structure(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = problem_of(monkeypatch, OF_TWO.format(1, "return x, x", "return False"))
    drawn, x = problem.draw({}, False), torch.arange(1.0, 5)
    assert problem.rounding_explains(drawn, (x, x)) and not problem.rounding_explains(drawn, [x, x])


def test_rounding_explains_no_other_signs(monkeypatch: pytest.MonkeyPatch) -> None:
    """As of eigenvectors, whose signs are free: the result in float64 has the others."""
    kernel = "return -x if x.dtype == torch.float64 else x"
    problem = problem_of(monkeypatch, OF_TWO.format(1, kernel, "return False"))
    drawn = problem.draw({}, False)
    assert not problem.rounding_explains(drawn, torch.arange(1.0, 5) * -2)


@pytest.mark.parametrize("said", ["(False,)", "[0, 'd', 3]", "dict(ok=False)", "1", "x", "(x, '')"])
def test_a_checker_that_gives_no_verdict(monkeypatch: pytest.MonkeyPatch, said: str) -> None:
    problem = problem_of(monkeypatch, OF_TWO.format(1, "return x", f"return {said}"))
    with pytest.raises(ProblemFailed, match=r"check_implementation returns .*, not a bool"):
        problem.check(problem.draw({}, False), torch.ones(4))


def test_a_reference_from_elsewhere(cwd: Path) -> None:
    with pytest.raises(ProblemFailed, match=r"reference\.py cannot be read"):
        FolderProblem(torch.clone, lambda tensor, device: tensor)


def test_a_draw_that_was_dropped_is_drawn_again_for_its_check() -> None:
    service = Service.__new__(Service)
    vars(service).update(_drawn={}, _asked={0: "request"}, _draw=[].remove)
    with pytest.raises(ValueError, match="not in list"):
        service._check(Check(0, {}, 0, 0), 0)


@pytest.mark.parametrize(
    ("makes", "noise"),
    [
        ("c = torch.empty(4)", {1}),
        ("c = torch.ones(4)", set()),
        ("c = torch.empty(4); c.data.normal_()", set()),
        ("c = torch.empty(4); c.numpy()[:] = range(4)", set()),
        ("with torch.inference_mode(): c = torch.empty(4).normal_()", set()),
    ],
)
def test_what_is_noise(monkeypatch: pytest.MonkeyPatch, makes: str, noise: set[int]) -> None:
    """The checker writes to all that it gets."""
    problem = problem_of(monkeypatch, IN_PLACE.format(makes=makes, takes_c=not noise))
    asked = (0, 0), (1, 0), (0, 1), (0, 0)
    drawn = [problem.draw({"beta": beta, "seed": seed}, False) for beta, seed in asked]
    assert [each.noise for each in drawn] == [{1}, noise, noise, noise]
    for share, passes in ((0.5, False), (0.5, False), (2.0, False), (1.0, True), (1.0, True)):
        output = drawn[1].expected * share
        assert (problem.check(drawn[1], output)[0], bool(output.any())) == (passes, True)


def test_inputs_stay_where_the_next_draw_uses_their_memory(monkeypatch: Any) -> None:
    makes = "kept = globals().setdefault('kept', torch.zeros(4)); c = kept.fill_(seed)"
    problem = problem_of(monkeypatch, IN_PLACE.format(makes=makes, takes_c=True))
    first, _ = (problem.draw({"beta": 0, "seed": n}, False) for n in (1, 2))
    assert first.storages[1].view(torch.float32).tolist() == [1.0] * 4


def test_nested_data_free_their_storages_without_a_search_for_garbage() -> None:
    gc.disable()
    try:
        tree, storages = trees.flatten(([torch.zeros(4)], {"a": torch.ones(2)}))
        data = trees.build(tree, storages)
        left = [weakref.ref(each) for each in (*storages, *trees.tensors_of(data))]
        del tree, storages, data
        assert [each() for each in left] == [None] * 4
    finally:
        gc.enable()
