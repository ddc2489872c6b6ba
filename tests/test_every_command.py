"""Every command of the README over judgements that were made with it, in a home of its own.

Cases are small and the submission is a template, so that each takes seconds. Kernels are emulated
also where a GPU is, since the times that a model predicts must be shown by every command.
"""

import json
import os
import re
from pathlib import Path

import pytest
from bot import root
from conftest import run_python, small_copy

from nvfp4.cli.main import main
from nvfp4.model.tools import tools

pytestmark = pytest.mark.skipif(
    not (tools("ptxas") and tools("nvdisasm")), reason="nothing is predicted without both programs"
)

emulated = ("--device", "emulate")
shape = ("--shape", "128,256,1")
time = r"\d+\.\d us \(\d+\.\d to \d+\.\d\)"


class User:
    """Runs commands in a folder, with the environment of a login and nothing else."""

    def __init__(self, folder: Path, home: Path) -> None:
        self.folder = folder
        self._printed: dict[tuple[str, ...], str] = {}
        kept = {name: os.environ[name] for name in ("PATH", "XDG_CACHE_HOME") if name in os.environ}
        caches = {"XDG_CACHE_HOME": str(Path.home() / ".cache")}  # so that little is compiled
        self._environment = {**caches, **kept, "HOME": str(home), "LANG": "C.UTF-8"}

    def runs(self, *arguments: str) -> str:
        """Return what a command that succeeds prints; it is run once."""
        if arguments not in self._printed:
            self._printed[arguments] = self._run(arguments)
        return self._printed[arguments]

    def _run(self, arguments: tuple[str, ...]) -> str:
        done = run_python("-m", "nvfp4", *arguments, cwd=self.folder, env=self._environment)
        assert "Traceback" not in done.stdout + done.stderr, done.stdout + done.stderr
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout


@pytest.fixture(scope="module")
def user(tmp_path_factory: pytest.TempPathFactory) -> User:
    """Has judged mine.py and other.py, which are judgements 1 and 2, and has what can be tuned."""
    case = {"m": 128, "k": 256, "l": 1, "seed": 1111}
    folder = small_copy(tmp_path_factory.mktemp("user"), True, tests=[case], benchmarks=[case])
    user = User(folder, tmp_path_factory.mktemp("home"))
    user.runs("new", "cute", "-o", "mine.py")
    text = (folder / "mine.py").read_text(encoding="utf-8")
    (folder / "other.py").write_text(f"{text}\n# the same once more\n", encoding="utf-8")
    text = (root / "submission.py").read_text(encoding="utf-8")
    (folder / "tuned.py").write_text(f"{text}\n{two_configurations}", encoding="utf-8")
    for arguments in judgements:
        user.runs(*arguments)
    return user


two_configurations = """
_all = configurations


def configurations(*of):
    return _all(*of)[:2]
"""

judgements = [("eval", "mine.py", *emulated), ("bench", "other.py", *shape, *emulated)]

commands = [
    *((arguments, time) for arguments in judgements),
    (("new", "torch", "-o", "plain.py"), "wrote plain.py"),
    (("check", "mine.py", *emulated), "passed"),
    (("test", "mine.py", "--no-log", *emulated), "passed"),
    (("explain", "mine.py", *shape), time),
    (("compare", "mine.py", "other.py", *emulated), r"on a B200, predicted"),
    (("tune", "tuned.py", *shape, "--model", "B200"), "predicted"),
    (("batch", "mine.py", "--jsonl", "out.jsonl", *emulated), "us predicted"),
    (("log",), "pred. us"),
    (("show",), time),
    (("show", "1"), time),
    (("report", "1", "2"), "wrote report.html"),
    (("selftest", "plain", "--device", "cpu"), "plain"),
    (("info", "--device", "cpu"), "cpu"),
    (("problems",), "nvfp4_gemv"),
]


@pytest.mark.parametrize(("arguments", "shown"), commands)
def test_a_command_shows_what_it_should(user: User, arguments: tuple[str, ...], shown: str) -> None:
    output = user.runs(*arguments)
    assert re.search(shown, " ".join(output.split())), output


def test_all_commands_of_the_readme_are_run() -> None:
    readme = (root / "README.md").read_text(encoding="utf-8")
    run = {arguments[0] for arguments, _ in commands}
    assert run == set(re.findall(r"`nvfp4 ([a-z]+)`", readme)) == set(main.commands)


@pytest.mark.parametrize("number", ["1", "2"])
def test_a_kept_object_has_the_predicted_time(user: User, number: str) -> None:
    verdict = json.loads(user.runs("show", number, "--json"))
    assert verdict["score"]["predicted"]["us"] > 0
    assert all(each["predicted"]["us"] > 0 for each in verdict["benchmarks"])
