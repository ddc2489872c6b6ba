"""Every command of the README over judgements that were made with it, in a home of its own.

Cases are small and the submission is a template, so that each takes seconds. Kernels are emulated
also where a GPU is, since the times that a model predicts must be shown by every command.
"""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from bot import root
from kept import succeeds
from small_cases import use_small_cases, with_small_cases

from nvfp4.cli.batch import eval_process
from nvfp4.cli.main import main
from nvfp4.model.tools import tools

pytestmark = pytest.mark.skipif(
    not (tools("ptxas") and tools("nvdisasm")), reason="nothing is predicted without both programs"
)

emulated = ("--device", "emulate")
shape = ("--shape", "128,256,1")
time = r"\d+\.\d us \(\d+\.\d to \d+\.\d\)"


@pytest.fixture(scope="module")
def judged(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[str]]:
    """What eval and bench printed: they have judged mine.py and other.py in the current folder,
    which are judgements 1 and 2 of this user. What can be tuned is there, too."""
    case = {"m": 128, "k": 256, "l": 1, "seed": 1111}
    small = {"tests": [case], "benchmarks": [case]}
    folder, customized = tmp_path_factory.mktemp("user"), tmp_path_factory.mktemp("customized")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.delenv("NVFP4_NO_LOG")
        patch.setenv("XDG_DATA_HOME", str(folder / "data"))
        use_small_cases(patch, **small)
        variables = with_small_cases(customized, **small)
        patch.setattr(eval_process, "package_path", lambda: variables)
        succeeds("new", "cute", "-o", "mine.py")
        text = Path("mine.py").read_text(encoding="utf-8")
        Path("other.py").write_text(f"{text}\n# the same once more\n", encoding="utf-8")
        text = (root / "submission.py").read_text(encoding="utf-8")
        Path("tuned.py").write_text(f"{text}\n{two_configurations}", encoding="utf-8")
        yield [succeeds(*arguments) for arguments in judgements]


two_configurations = """
_all = configurations


def configurations(*of):
    return _all(*of)[:2]
"""

judgements = [
    ("eval", "mine.py", *emulated),
    ("bench", "other.py", *shape, "--flush", "clean", *emulated),
]

commands = [
    (("new", "torch", "-o", "plain.py"), "wrote plain.py"),
    (("new", "--from", "cute/split_k_warp", "-o", "\x1brung.py"), r"wrote \\x1brung.py"),
    (("check", "plain.py", "--shape", "0", *emulated), "passed"),
    (("test", "plain.py", "--no-log", "-x", "--strict", "-o", "it.txt", *emulated), "passed"),
    (("explain", "mine.py", *shape, "--top", "3", "--ptx"), time),
    (("compare", "mine.py", "other.py", *emulated), r"on a B200, predicted"),
    (("tune", "tuned.py", *shape, "--model", "B200"), "predicted"),
    (("batch", "mine.py", "--jsonl", "out.jsonl", *emulated), "us predicted"),
    (("log", "-n", "5"), "pred. us"),
    (("log", "--json"), '"judgements"'),
    (("show",), time),
    (("show", "1"), time),
    (("show", "2", "--json"), r'"score": .* "predicted": { "gpu": "B200", "us": [1-9]'),
    (("show", "1", "--source"), "custom_kernel"),
    (("report", "1", "2", "-o", "both.html"), "wrote both.html"),
    (("selftest", "plain", "--device", "cpu"), "plain"),
    (("selftest", "--quick", "--list"), "honest plain"),
    (
        ("info", "--device", "cpu", "--json"),
        r'"kind": "cpu".* "read_gbps": [1-9].* "spec": "m: 128; k: 256;.* "floor_us": \d+\.\d',
    ),
    (("problems",), "nvfp4_gemv"),
]


def test_a_judgement_shows_the_predicted_time(judged: list[str]) -> None:
    for output in judged:
        assert re.search(time, " ".join(output.split())), output


@pytest.mark.parametrize(("arguments", "shown"), commands)
def test_a_command_shows_what_it_should(
    arguments: tuple[str, ...], shown: str, judged: list[str], capfd: pytest.CaptureFixture[str]
) -> None:
    output = succeeds(*arguments) + capfd.readouterr().out
    assert re.search(shown, " ".join(output.split())), output


def test_all_commands_of_the_readme_are_run() -> None:
    readme = (root / "README.md").read_text(encoding="utf-8")
    run = {arguments[0] for arguments in (*judgements, *(each for each, _ in commands))}
    assert run == set(re.findall(r"`nvfp4 ([a-z]+)`", readme)) == set(main.commands)
