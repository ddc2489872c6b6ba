"""Whether files pass at the first try on a GPU, at the second, and in a batch.

    PYTHONPATH=.:tests python -m scripts.first_try OUT.json [OPTIONS] [FILE ...]

Every file is judged by `nvfp4 eval` from a fresh copy of the checkout that is not installed, with
an empty home folder and empty caches, and once more with what the first try has left. Then `nvfp4
batch` judges a few with empty caches, and all of them. Without FILE: the CUDA rungs of the ladder,
and of tests/field what is right in CUDA C++ and Triton. Prints a table and writes OUT.json. Exits
with 1 if a verdict is not "passed", with 2 if the budget was too small: the same command goes on
from OUT.json, unless the checkout has changed.

Several files are judged beside each other, because their compilers take most of the time, but one
at a time is timed. The times mean nothing all the same.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import yaml
from corpus import load

from nvfp4.cli.batch.lines import failure_of

ROOT = Path(__file__).resolve().parent.parent

JUDGE = """
import fcntl, sys
from contextlib import contextmanager, nullcontext
from nvfp4.cli.judging import assess
from nvfp4.cli.main import main

timed = assess._run_benchmarks

@contextmanager
def alone(turn):
    with turn or nullcontext(), open(sys.argv[1], "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield

def in_turn(*arguments):
    *others, turn = arguments
    timed(*others, alone(turn))

assess._run_benchmarks = in_turn
main(sys.argv[2:])
"""
"""`nvfp4`, but one judgement at a time runs benchmarks."""

CACHES = re.compile(
    r"(XDG|NVFP4|POPCORN)_\w+|\w+_CACHE_(DIR|PATH)|TRITON_HOME|TORCH_EXTENSIONS_DIR"
)
"""Variables by which a process would find what another has kept."""

SHORTEST_S = 30.0
"""Nothing is started with less time left."""


def write_corpus(checkout: Path) -> None:
    """What of tests/field is right, whole, below ``field``. What passes with a finding does so by
    luck alone."""
    for name in ("cuda", "triton"):
        folder = checkout / "field" / name
        folder.mkdir(parents=True)
        for case in load(ROOT / "tests" / "field" / name):
            if case.directives.get("expect") == "pass":
                case.write(folder)


def all_files(checkout: Path) -> list[Path]:
    """What must pass; paths below the checkout."""
    found = [*checkout.glob("ladder/cuda/*.py"), *checkout.glob("field/*/*.py")]
    return [path.relative_to(checkout) for path in sorted(found)]


class Trial:
    """A copy of the checkout, caches and homes in a folder; what was found so far."""

    def __init__(self, folder: Path, out: Path, quick: bool, budget_s: float) -> None:
        """quick: with two tests and one benchmark."""
        self.folder, self.out = folder, out
        self.copy, self.caches = folder / "checkout", folder / "caches"
        self._deadline = time.monotonic() + budget_s
        self._writing = threading.Lock()
        fresh = folder / "fresh"
        shutil.rmtree(fresh, ignore_errors=True)
        shutil.copytree(ROOT, fresh, symlinks=True, ignore=_left_out)
        if quick:
            content = yaml.safe_load((ROOT / "task.yml").read_text(encoding="utf-8"))
            tests = [content["tests"][number] for number in (0, 7)]
            content.update(tests=tests, benchmarks=content["benchmarks"][-1:])
            (fresh / "task.yml").write_text(yaml.safe_dump(content), encoding="utf-8")
        write_corpus(fresh)
        identity = identity_of(fresh)
        if not self.copy.is_dir() or identity_of(self.copy) != identity:
            for each in folder.iterdir():
                if each != fresh:
                    shutil.rmtree(each) if each.is_dir() else each.unlink()
            fresh.rename(self.copy)
        known = json.loads(out.read_text(encoding="utf-8")) if out.is_file() else {}
        same = known.get("checkout") == identity
        self._all: dict[str, Any] = known if same else {"checkout": identity, "files": {}}

    @property
    def found(self) -> dict[str, dict[str, Any]]:
        """What is known, by file."""
        files: dict[str, dict[str, Any]] = self._all["files"]
        return files

    @property
    def left_s(self) -> float:
        return self._deadline - time.monotonic()

    def note(self, file: Path, **values: Any) -> None:
        """Adds to what is known of a file, and writes it."""
        with self._writing:
            self.found.setdefault(str(file), {}).update(values)
            self.out.write_text(json.dumps(self._all, indent=1), encoding="utf-8")

    def evaluate(self, file: Path) -> None:
        """The first and the second try, unless they are known."""
        home = self.folder / "homes" / str(file).replace("/", "-")
        if "second" in self.found.get(str(file), {}):
            return
        content = (self.copy / file).read_bytes()
        kept = self.caches / "nvfp4/submissions" / hashlib.sha256(content).hexdigest()[:32]
        for folder in (home, kept):
            shutil.rmtree(folder, ignore_errors=True)
        for name in ("first", "second"):
            if self.left_s < SHORTEST_S:
                return
            lock = str(self.folder / "lock")
            command = ["-c", JUDGE, lock, "eval", str(self.copy / file), "--timeout", "400"]
            start_s = time.monotonic()
            said = self._run([*command, "--json"], home, self.caches)
            if said is None:
                return
            try:
                verdict = json.loads(said.stdout)
            except ValueError:
                verdict = {"error": {"code": "crashed", "message": said.stderr[-500:]}}
            verdict = {"passed": False, "unclear": False, **verdict}
            values = {name: outcome(verdict), f"{name}_s": round(time.monotonic() - start_s, 1)}
            if values[name] != "passed":
                values[f"{name}_message"] = ": ".join(failure_of(verdict) or ())[:2000]
            if "not kept" in said.stderr:
                values[name] = "no history"
                values[f"{name}_message"] = said.stderr[-500:]
            values["of_floor"] = of_floor(verdict)
            values["rewritten"] = len((verdict.get("device") or {}).get("retargeted") or ())
            self.note(file, **values)
            print(f"{name:6} {file}: {values[name]}, {values[f'{name}_s']} s", flush=True)

    def batch(self, files: Sequence[Path], name: str, caches: Path) -> None:
        """`nvfp4 batch` over files that it has not judged so far. name: batch or cold."""
        files = [file for file in files if name not in self.found.get(str(file), {})]
        if not files or self.left_s < SHORTEST_S:
            return
        lines = self.folder / f"{name}.jsonl"
        command = ["-m", "nvfp4", "batch", *(str(self.copy / file) for file in files)]
        self._run(
            [*command, "--jsonl", str(lines), "--resume", "--timeout", "400"],
            self.folder / "homes" / name,
            caches,
        )
        for text in lines.read_text(encoding="utf-8").splitlines() if lines.exists() else ():
            line = json.loads(text)
            file = Path(line["submission"]["path"]).relative_to(self.copy)
            values = {name: outcome(line), f"{name}_s": line["elapsed_s"]}
            if not line["passed"]:
                values[f"{name}_message"] = ": ".join(failure_of(line) or ())[:2000]
            self.note(file, **values)

    def _run(
        self, arguments: list[str], home: Path, caches: Path
    ) -> subprocess.CompletedProcess[str] | None:
        """Python with these arguments, as somebody who has judged nothing before; None where the
        time was over first."""
        (home / "tmp").mkdir(parents=True, exist_ok=True)
        environment = {
            **{name: value for name, value in os.environ.items() if not CACHES.fullmatch(name)},
            "PYTHONUSERBASE": os.environ.get("PYTHONUSERBASE", str(Path.home() / ".local")),
            "PYTHONPATH": os.pathsep.join([str(self.copy), *_other_paths()]),
            "HOME": str(home),
            "TMPDIR": str(home / "tmp"),  # where some keep caches
            "XDG_CACHE_HOME": str(caches),
        }
        process = subprocess.Popen(
            [sys.executable, *arguments],
            cwd=self.folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        try:
            said, errors = process.communicate(timeout=max(1.0, self.left_s))
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGINT)
            process.communicate()
            return None
        return subprocess.CompletedProcess(arguments, process.returncode, said, errors)


def _left_out(folder: str, names: list[str]) -> list[str]:
    """What is no part of the checkout."""
    beside = ("build", "dist", "shared") if Path(folder) == ROOT else ()
    return [each for each in names if each.startswith((".", "__pycache__")) or each in beside]


def identity_of(folder: Path) -> str:
    """Of the files below a folder but for what Python compiles."""
    digest = hashlib.sha256()
    for path in sorted(folder.rglob("*")):
        if path.is_file() and "__pycache__" not in path.parts:
            digest.update(str(path.relative_to(folder)).encode() + path.read_bytes())
    return digest.hexdigest()[:16]


def outcome(verdict: dict[str, Any]) -> str:
    """passed, unclear, failed, or a code where nothing was judged."""
    if "error" in verdict:
        return str(verdict["error"]["code"])
    return "passed" if verdict["passed"] else "unclear" if verdict["unclear"] else "failed"


def of_floor(verdict: dict[str, Any]) -> float | None:
    """The largest share of a mean that the floor is; more than 1 is impossible."""
    timed = [each for each in verdict.get("benchmarks", ()) if each["mean_us"]]
    shares = [each["floor_us"] / each["mean_us"] for each in timed if each["floor_us"]]
    return round(max(shares), 3) if shares else None


def _other_paths() -> list[str]:
    """Folders on PYTHONPATH outside of this checkout's modules: what is carried along."""
    given = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    paths = [Path(each).resolve() for each in given if each]
    return [str(path) for path in paths if path not in (ROOT, ROOT / "tests")]


def show(found: dict[str, dict[str, Any]], files: Sequence[Path], wanted: Sequence[str]) -> int:
    """Prints a line for each file; the exit code."""
    print(
        f"\n{'':42}{'first':>10}{'second':>10}{'batch':>10}{'cold':>10}{'s':>7}{'s':>7}  of floor"
    )
    differ = missing = 0
    for file in files:
        known = found.get(str(file), {})
        said = [known.get(name, "-") for name in ("first", "second", "batch", "cold")]
        message = next((known[key] for key in known if key.endswith("_message")), "")
        times = f"{known.get('first_s', ''):>7}{known.get('second_s', ''):>7}"
        times += f"{known.get('of_floor') or '':>10}"
        name = str(file).removeprefix("field/").removesuffix(".py")
        first_line = " ".join(message.split())[:160]
        print(f"{name:42}{''.join(f'{each:>10}' for each in said)}{times}  {first_line}".rstrip())
        differ += any(each not in ("passed", "-") for each in said)
        missing += any(name not in known for name in wanted)
    print(f"\n{len(files)} files: {differ} not as expected, {missing} not judged in full")
    return 1 if differ else 2 if missing else 0


def main() -> int:
    """The exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("files", type=Path, nargs="*")
    parser.add_argument("--quick", action="store_true", help="two tests and one benchmark each")
    parser.add_argument("--jobs", type=int, default=max(1, (os.cpu_count() or 1) // 2))
    parser.add_argument("--budget", type=float, default=86400.0, help="seconds")
    parser.add_argument("--part", choices=["evals", "batch", "all"], default="all")
    parser.add_argument("--cold", type=int, default=1, help="files of a batch with empty caches")
    parser.add_argument("--work", type=Path, default=ROOT / "build/first-try")
    given = parser.parse_intermixed_args()
    trial = Trial(given.work.resolve(), given.out.resolve(), given.quick, given.budget)
    files = given.files or all_files(trial.copy)
    wanted: list[str] = []
    if given.part != "batch":
        wanted += ["first", "second"]
        with ThreadPoolExecutor(given.jobs) as pool:
            list(pool.map(trial.evaluate, files))
    if given.part != "evals":
        wanted += ["batch"]
        cold = trial.folder / "cold-caches"
        shutil.rmtree(cold, ignore_errors=True)
        trial.batch(files[: given.cold], "cold", cold)
        trial.batch(files, "batch", trial.caches)
    return show(trial.found, files, wanted)


if __name__ == "__main__":
    sys.exit(main())
