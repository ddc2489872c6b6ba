"""A problem: the folder that it lies in, and what its task.yml says."""

import ast
import filecmp
import hashlib
import json
import os
import re
import site
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import field, replace
from functools import cache
from pathlib import Path
from typing import Any

from nvfp4.cli.errors import SetupError
from nvfp4.cli.text import whole_number
from nvfp4.records.base import Record
from nvfp4.records.cases import CaseError, case_line, dimensions, elements_of, label, parse_case
from nvfp4.records.files import read_whole, write_whole

leaderboard = "nvfp4_gemv"
"""The contest's name for the problem that comes with the package."""

_names_its_leaderboard = re.compile(r"(?:#|//)!POPCORN\s+leaderboards?\s+(.+)", re.IGNORECASE)
_is_name = re.compile(r"\w[\w.+-]{0,99}")
"""Pattern of the name of a leaderboard or a file; a checkout may contain any text."""
_keeps_outputs = re.compile(rb"\[custom_kernel\(|outputs\.append\(")
"""Pattern in an eval.py that makes several calls before it checks their outputs."""
_largest_file_bytes = 4 << 20
_extras = "extras.py"
"""The file in a user's problem that adds what the contest's files do not say; see
docs/problems.md."""


class ProblemError(SetupError):
    """A problem's folder is not what it should be."""

    code = "setup.problem"

    def __init__(
        self, message: str, hint: str = "docs/problems.md says what it must hold."
    ) -> None:
        super().__init__(message, hint)


class Shape(Record):
    """A case without its seed, for people."""

    sizes: tuple[tuple[str, str], ...]

    def __str__(self) -> str:
        return label("; ".join(f"{name}: {value}" for name, value in self.sizes))

    @property
    def names(self) -> str:
        """The names of its dimensions, as the heading of a column."""
        return " x ".join(name for name, _ in self.sizes)

    @property
    def elements(self) -> int:
        """See ``elements_of``."""
        return elements_of(dict(self.sizes))


def shape_of(line: str) -> Shape:
    """Return the shape of a line of a case file."""
    return Shape(tuple(dimensions(line).items()))


class Problem(Record):
    """A problem: its cases, and the files by which submissions are judged."""

    folder: Path
    tests: list[str]
    """Lines of a case file."""
    benchmarks: list[str]
    name: str = leaderboard
    """The name of the leaderboard."""
    files: dict[str, bytes] = field(default_factory=dict)
    """The files beside a submission where it is judged, by name."""
    ranking_by: str = "geom"
    """geom, mean, or last: only the last benchmark ranks."""
    template: Path | None = None
    """A submission to start from."""
    draws_full_range: bool = True
    """Whether there is a second kind of inputs."""
    cases: tuple[str, str] = ("", "")
    """Lines of the case that is checked first, and of an awkward one; "" for none."""
    emulated_per_s: float = 0.0
    """Rough number of elements (see ``elements_of``) that are emulated in a second without a GPU; 0
    if unknown."""

    @property
    def check_case(self) -> str:
        """The case that is checked first: by default the cheapest one."""
        return self.cases[0] or min(self.tests, key=lambda line: shape_of(line).elements)

    @property
    def inputs(self) -> tuple[str, ...]:
        """The kinds of inputs."""
        return ("contest", "full") if self.draws_full_range else ("contest",)

    def chosen(self, given: Sequence[str], among: list[str]) -> list[str]:
        """Return the lines of the cases that the user names (see `case`); without any, all of
        these. Raises SetupError, also if there are none."""
        found = [self.case(each, among) for each in given] or among
        if not found:
            kind = "tests" if among is self.tests else "benchmarks"
            raise SetupError(f"{self.name} has no {kind}", "Name a case: --case name=value,...")
        return found

    def case(self, text: str, among: list[str]) -> str:
        """Return the line of a case that the user names: its number among these, ``name=value`` for
        each of its arguments, or the sizes alone, such as 512,512,2. Raises SetupError."""
        names = [name for name, _ in shape_of(self.tests[0]).sizes]
        number = whole_number(text)
        if number is not None and number < len(among):
            return among[number]
        if number is not None and len(names) > 1:
            raise SetupError(f"there is no case {number}", f"The last one is {len(among) - 1}.")
        seeds = [part for part in self.tests[0].split("; ") if part.startswith("seed: ")]
        if "=" in text:
            parts = re.split(r",(?=\s*[A-Za-z_]\w*=)", text)
            given = [": ".join(piece.strip() for piece in each.split("=", 1)) for each in parts]
        else:
            values = re.split(r"[x,]", text.lower().strip())
            if len(values) != len(names):
                such_as = str(shape_of(self.tests[0])).replace(" x ", ",")
                hint = f"Name {','.join(names)}, such as {such_as}."
                raise SetupError(f"{text!r} is no case of {self.name}", hint, "usage")
            given = [f"{name}: {value.strip()}" for name, value in zip(names, values, strict=True)]
        line = "; ".join([*given, *([] if any(e.startswith("seed:") for e in given) else seeds)])
        try:
            parse_case(line)
        except CaseError as error:
            hint = f"It has {', '.join(names)}."
            message = f"{text!r} is no case of {self.name}: {error}"
            raise SetupError(message, hint, "usage") from None
        return line

    @property
    def flush(self) -> str:
        """How its own eval.py empties the L2 cache: contest or fill; see ``gpu.timing``."""
        large = b"clear_l2_cache_large" in self.files.get("eval.py", b"")
        return "contest" if self.is_bundled or large else "fill"

    @property
    def calls(self) -> str:
        """How its own eval.py makes its calls; see ``Options``."""
        code = self.files.get("eval.py", b"")
        if b"torch.cuda.CUDAGraph(" in code:
            return "graph"
        if b"check_implementation(" in code and b"clone" not in code:
            return "shared"
        return "together" if _keeps_outputs.search(code) else "each"

    @property
    def sha256(self) -> str:
        """Hash of its name, cases and files: judgements with another one are of another problem."""
        judging = replace(self, folder=Path(), template=None)
        return hashlib.sha256(repr(judging).encode()).hexdigest()

    @property
    def is_bundled(self) -> bool:
        """Whether it comes with the package."""
        return self.folder == bundled_folder()


def bundled_folder() -> Path:
    """Return the folder of NVFP4 GEMV in this package; a checkout has its files at the top."""
    return Path(__file__).resolve().parent.parent / "problems" / leaderboard


def package_path() -> dict[str, str]:
    """Return the variable with which Python finds this package; none if it is installed, as other
    packages beside it would come before the standard library."""
    folder, inherited = bundled_folder().parents[2], os.environ.get("PYTHONPATH")
    installed = *site.getsitepackages(), site.getusersitepackages()
    if str(folder) in map(os.path.realpath, installed):
        return {}
    return {"PYTHONPATH": os.pathsep.join([str(folder), *([inherited] if inherited else [])])}


def _sentence(error: Exception) -> str:
    """Return the message of an error on one line of limited length."""
    return " ".join(str(error).split())[:300] or type(error).__name__


def read_file(path: Path) -> bytes:
    """Return a submission or a file of a problem, which links may lead to. Raises OSError, also for
    a pipe, a device or a large file, and ValueError."""
    return read_whole(path, _largest_file_bytes)


def _read_yaml(path: Path) -> Any:
    """Return the content of a YAML file, in which 1:30 is a text. Raises ProblemError."""
    import yaml

    class Loader(yaml.SafeLoader):
        """PyYAML takes 1:30 for 90, and hours for a number with a million colons."""

        def construct_number(self, node: yaml.ScalarNode) -> Any:
            if ":" in node.value:
                return self.construct_scalar(node)
            return yaml.SafeLoader.yaml_constructors[node.tag](self, node)

    for name in ("int", "float"):
        Loader.add_constructor(f"tag:yaml.org,2002:{name}", Loader.construct_number)
    try:
        text = read_file(path).decode("utf-8")
        if any(isinstance(each, yaml.AliasEvent) for each in yaml.parse(text, Loader)):
            raise ProblemError(f"{path} has aliases, with which few lines make gigabytes of text")
        return yaml.load(text, Loader)
    except ProblemError:
        raise
    except Exception as error:  # PyYAML raises errors of any kind, such as IndexError for `!!int`
        why = getattr(error, "strerror", None) or _sentence(error)
        raise ProblemError(f"cannot read {path}: {why}") from error


def load_problem(folder: Path | None = None) -> Problem:
    """Read a problem's folder; that of NVFP4 GEMV without one. Raises ProblemError."""
    folder = folder or bundled_folder()
    path = folder / "task.yml"
    content = _read_yaml(path)
    try:
        tests = [case_line(case) for case in content["tests"]]
        benchmarks = [case_line(case) for case in content.get("benchmarks") or []]
        sources = {str(each["name"]): str(each["source"]) for each in content["files"]}
    except (KeyError, TypeError, AttributeError, IndexError, ValueError, CaseError) as error:
        raise ProblemError(f"{path} does not hold files and tests: {_sentence(error)}") from error
    name = leaderboard_of(folder)
    extras = b""
    for at in (bundled_folder().parent / name, folder):  # its own before that of the package
        with suppress(OSError, ValueError):
            extras = read_file(at / _extras)
    files = {
        name: _read_file(folder, name, source)
        for name, source in sources.items()
        if source != "@SUBMISSION@" and name.lower() != "submission.py"
    }
    described = _described(extras)
    cases = _extra_case(described.get("check_case")), _extra_case(described.get("awkward_case"))
    if not tests:
        raise ProblemError(f"{path} has no tests")
    if content.get("multi_gpu"):
        raise ProblemError(f"{path} is for several GPUs (multi_gpu), and nvfp4 judges on one")
    bundled, speed = folder == bundled_folder(), described.get("emulated_per_s")
    if "reference.py" not in files:
        raise ProblemError(f"{path} names no reference.py")
    if extras and not bundled:
        files[_extras] = extras
    ranking = str(content.get("ranking_by", "last"))
    if ranking not in ("last", "mean", "geom"):
        raise ProblemError(f"{path} has ranking_by {ranking[:80]!r}, not last, mean or geom")
    named = content.get("templates")
    starts = [folder / str(each) for each in (named.values() if isinstance(named, dict) else ())]
    starts = [each for each in starts if _is_template(each, folder.parent)]
    template = next(filter(os.path.isfile, [*starts, folder / "submission.py"]), None)
    draws_full_range = bundled or "generate_second_input" in described
    per_s = float(speed) if isinstance(speed, int | float) and 1 <= speed < 1e18 else 0.0
    judged = tests, benchmarks, name, files, ranking
    return Problem(folder, *judged, template, draws_full_range, cases, per_s)


def _is_template(path: Path, above: Path) -> bool:
    """Return whether a file may become a submission, which is published: Python code that lies in
    or below a folder."""
    real = Path(os.path.realpath(path))
    return real.suffix == ".py" and real.is_relative_to(os.path.realpath(above))


def _read_file(folder: Path, name: str, source: str) -> bytes:
    """Return a file of a problem, which may lie outside its folder. Raises ProblemError."""
    if not _is_name.fullmatch(name):
        raise ProblemError(f"{folder / 'task.yml'}: {name!r} is no name of a file")
    for path in (folder / source, folder / name):
        with suppress(OSError, ValueError):
            return read_file(path)
    raise ProblemError(f"{folder / 'task.yml'} names {source}, which is not there")


def _described(source: bytes) -> dict[str, Any]:
    """Return the names that a Python file assigns plain values to, with the values, and the names
    of its functions, with None. The file is not run."""
    found: dict[str, Any] = {}
    with suppress(SyntaxError, ValueError, MemoryError, RecursionError):
        for each in ast.parse(source).body:
            if isinstance(each, ast.FunctionDef):
                found[each.name] = None
            if isinstance(each, ast.Assign) and isinstance(each.targets[0], ast.Name):
                with suppress(ValueError):
                    found[each.targets[0].id] = ast.literal_eval(each.value)
    return found


def _extra_case(case: Any) -> str:
    try:
        return case_line(case) if isinstance(case, dict) else ""
    except (CaseError, ValueError) as error:
        raise ProblemError(f"{_extras} has a case that no line can hold: {error}") from None


def leaderboard_of(folder: Path) -> str:
    """Return a folder's name in the list of problems above it, or else the folder's own name, with
    other signs as underscores."""
    folder = folder.resolve()
    for above in list(folder.parents)[:3]:
        for path in sorted(above.glob("*.yaml")):
            for entry in _listed(path):
                if entry[1] == folder and _is_name.fullmatch(entry[0]):
                    return entry[0]
    return re.sub(r"^\W|[^\w.+-]", "_", folder.name)[:100] or "_"


@cache
def _listed(path: Path) -> list[tuple[str, Path]]:
    """Name and folder of each problem that a list names; nothing of another kind of file."""
    try:
        content = _read_yaml(path)["problems"]
        folders = [os.path.realpath(path.parent / str(each["directory"])) for each in content]
        return [(str(e["name"]), Path(at)) for e, at in zip(content, folders, strict=True)]
    except (ProblemError, KeyError, TypeError, ValueError):
        return []


def data_file(name: str) -> Path:
    """Return the path of a file in the user's data folder."""
    from platformdirs import user_data_path

    return user_data_path("nvfp4", appauthor=False) / name


def known_problems() -> dict[str, Path]:
    """Return the folders by leaderboard: that of the package, and those that were added."""
    try:
        content = json.loads(read_file(data_file("problems.json")))
        added = {str(name): Path(folder) for name, folder in content.items()}
    except (OSError, ValueError, AttributeError, TypeError, RecursionError):
        added = {}
    return {leaderboard: bundled_folder(), **added}


def add_problems(folder: Path) -> dict[str, Path]:
    """Remember the problems of a checkout; returns those that were found. Raises SetupError."""
    if not os.path.isdir(folder):
        raise SetupError(f"{folder} is no folder", "Name a folder: git clone makes a checkout.")
    try:
        # The leaderboards of a checkout: every folder with a task.yml that names a reference.
        found: dict[str, Path] = {}
        for path in sorted(folder.rglob("task.yml")):
            found.setdefault(leaderboard_of(path.parent), path.parent.resolve())
    except RecursionError:
        raise SetupError(f"{folder} is nested too deep", "Name a checkout of problems.") from None
    except OSError as error:
        why = f"cannot read all of {folder}: {error.strerror}"
        raise SetupError(why, "Name a checkout of problems.", "setup.unreadable") from None
    if not found:
        raise SetupError(f"no task.yml lies below {folder}", "Name a checkout of problems.")
    known = {**known_problems(), **found}
    known.pop(leaderboard, None)
    path = data_file("problems.json")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, json.dumps({name: str(each) for name, each in known.items()}, indent=2))
    except OSError as error:
        raise SetupError(f"cannot write {path}: {error.strerror}", "Make it writable.") from None
    return found


def leaderboards_named(content: bytes) -> list[str]:
    """Return the leaderboards that directives in a submission's first comment lines name."""
    named: list[str] = []
    for line in content.decode("utf-8", "replace").splitlines():
        if line.strip() and not line.lstrip().startswith(("#", "//")):
            break
        if found := _names_its_leaderboard.match(line.strip()):
            named += found.group(1).split()
    return named


def problem_named(given: str) -> str:
    """Return the problem of a --problem, or of the current folder's task.yml without one: the name
    of a known problem or an absolute folder; "" if neither says. Raises ProblemError."""
    known = known_problems()
    if given and given not in known:
        folder = os.path.expanduser(given)
        if not os.path.isdir(folder):
            names = ", ".join(known)
            hint = f"Name a folder with a task.yml, or one of {names}: nvfp4 problems add FOLDER."
            raise ProblemError(f"there is no problem {given[:80]!r}", hint)
        given = os.path.realpath(folder)
        return leaderboard if Path(given) == bundled_folder().parents[2] else given
    here = Path("task.yml")
    if given or not os.path.isfile(here):
        return given
    own = not filecmp.cmp(here, bundled_folder() / "task.yml", shallow=False)
    return os.getcwd() if own else ""


def find_problem(given: str, submission: Path | None = None) -> Problem:
    """Return the problem that a command is for.

    given: a folder or the name of a leaderboard. If it is empty: the current folder where it has a
    task.yml, then the leaderboard that the submission names, then NVFP4 GEMV. Raises SetupError,
    also if the submission names only leaderboards that are not known.
    """
    known, content = known_problems(), b""
    if given := problem_named(given):
        return load_problem(known.get(given) or Path(given))
    with suppress(OSError):  # a path that is no file is reported when it is judged
        content = read_file(submission) if submission else b""
    named = leaderboards_named(content)
    for name in named:
        if name in known:
            return load_problem(known[name])
    if named:
        hint = "nvfp4 problems add FOLDER makes those of a checkout known; or name one: --problem."
        message = f"{submission} names the leaderboard {named[0][:80]}, which is unknown"
        raise ProblemError(message, hint)
    return load_problem()
