"""Every judgement, kept in an SQLite file in the user's data folder."""

import json
import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import MISSING, dataclass, fields
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, TypeVar

from nvfp4.cli.errors import SetupError
from nvfp4.cli.problem import data_file
from nvfp4.cli.text import whole_number
from nvfp4.records.channel import record

busy_s = 10.0
"""How long to wait for other writers; a transaction takes a few milliseconds."""

_application = 0x6E767034  # "nvp4", so that no other program's file is taken for ours

_tables = (
    "CREATE TABLE sources (sha256 TEXT PRIMARY KEY, content BLOB NOT NULL)",
    """
    CREATE TABLE judgements (
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        judged_at REAL NOT NULL,
        path TEXT NOT NULL,
        sha256 TEXT NOT NULL REFERENCES sources,
        outcome TEXT NOT NULL,
        tests_passed INTEGER NOT NULL,
        tests INTEGER NOT NULL,
        benchmarks TEXT NOT NULL,
        geomean_us REAL,
        bound_us REAL,
        kind TEXT,
        device TEXT,
        flush TEXT,
        elapsed_s REAL,
        environment TEXT NOT NULL,
        verdict TEXT NOT NULL,
        unverified INTEGER NOT NULL
    )
    """,
    "CREATE INDEX judgements_of ON judgements (sha256)",
)

version = 2


class HistoryError(SetupError):
    """The history cannot be used; it is left as it is."""

    code = "setup.history"


@dataclass(frozen=True, kw_only=True)
class Entry:
    """A judgement as the log lists it."""

    id: int
    judged_at: float
    """Unix time in seconds."""
    path: str
    """The path as given; bytes that are no text are escaped."""
    sha256: str
    outcome: str
    """passed, failed, unclear or interrupted."""
    tests_passed: int
    tests: int
    benchmarks: str
    """The shapes of the benchmarks."""
    geomean_us: float | None
    """None unless timed."""
    bound_us: float | None
    """The geometric mean of a B200's least times for emulated benchmarks."""
    kind: str | None
    """cuda or cpu."""
    device: str | None
    """Name of the device, or the architecture that kernels were emulated for."""
    flush: str | None
    """None without a GPU."""
    elapsed_s: float | None
    unverified: int
    """The number of benchmarks whose counts may leave out work."""
    environment: dict[str, str]
    """Versions of nvfp4 and Python, and the platform."""
    best: bool = False
    """Whether it ranks first of those that passed with these benchmarks, GPU and flush."""
    predicted_us: float | None = None
    """The predicted figure that the leaderboard ranks by, in microseconds."""
    predicted_gpu: str | None = None


@dataclass(frozen=True, kw_only=True)
class Record(Entry):
    """A judgement with everything that is kept of it."""

    content: bytes
    """The submission's text."""
    verdict_object: dict[str, Any]
    """See docs/json.md."""


E = TypeVar("E", bound=Entry)
_json = ("environment", "verdict_object")
_columns = [field.name for field in fields(Entry) if field.default is MISSING]


def _of_score(name: str) -> str:
    """Return SQL of a value of the score; NULL where the verdict has none."""
    return f"CASE WHEN json_valid(verdict) THEN json_extract(verdict, '$.score.{name}') END"


_computed = f"""
    id IN (
        SELECT id FROM (
            SELECT id, MIN(COALESCE({_of_score("ranked_us")}, geomean_us)) FROM judgements
            WHERE outcome = 'passed' AND kind = 'cuda' AND geomean_us IS NOT NULL
            GROUP BY benchmarks, device, flush, COALESCE({_of_score("ranking_by")}, 'geom')
        )
    ) AS best,
    {_of_score("predicted.us")} AS predicted_us,
    {_of_score("predicted.gpu")} AS predicted_gpu
"""


class History:
    """Judgements by number. Methods raise HistoryError where the file cannot be used.

    Many processes may write at once: a transaction locks the file, and one that is killed in the
    middle is undone by the next process that opens it. There is no write-ahead log, because
    home folders often lie on a network, where SQLite's does not work.
    """

    def __init__(self, path: Path | None = None) -> None:
        """path: a file, which need not exist."""
        self.path = path or data_file("history.sqlite3")

    def add(self, values: dict[str, Any], content: bytes, verdict_object: dict[str, Any]) -> int:
        """Keeps a judgement and returns its number. values: the fields of an Entry but its id.
        content: of the file that has the hash.
        """
        texts = {"environment": values["environment"], "verdict": verdict_object}
        values = {**values, **{name: json.dumps(each) for name, each in texts.items()}}
        for name, value in values.items():
            if isinstance(value, str):  # a path may hold bytes that are no text
                values[name] = value.encode("utf-8", "backslashreplace").decode()
        names = ", ".join(values)
        marks = ", ".join("?" * len(values))
        with self._opened() as database:
            database.execute("BEGIN IMMEDIATE")  # undone unless it is committed
            source = values["sha256"], content
            database.execute("INSERT OR IGNORE INTO sources VALUES (?, ?)", source)
            judgement = f"INSERT INTO judgements ({names}) VALUES ({marks})"
            row = database.execute(judgement, tuple(values.values()))
            database.execute("COMMIT")
            return int(row.lastrowid or 0)

    def entries(self, most: int = -1) -> list[Entry]:
        """Return the newest judgements first, without those that another program has spoilt. most:
        how many; all if negative."""
        columns = ", ".join([*_columns, _computed])
        query = f"SELECT {columns} FROM judgements ORDER BY id DESC LIMIT ?"
        found = (_read(Entry, row) for row in self._rows(query, (most,)))
        return [each for each in found if each is not None]

    def find(self, number: int) -> Record:
        """Return the judgement of a number. Raises HistoryError if there is none."""
        found = self._find("judgements.id = ?", number) if number < 2**63 else None
        if found is None:
            hint = "nvfp4 log lists those that are."
            raise HistoryError(f"no judgement {number} is kept", hint, "setup.not_kept")
        return found

    def newest(self) -> Record:
        """Return the last judgement. Raises HistoryError if there is none."""
        found = self._newest("sha256 IS NOT ?", None)
        if found is None:
            hint = "nvfp4 eval, test and bench keep theirs."
            raise HistoryError("no judgement is kept", hint, "setup.not_kept")
        return found

    def whole(self, sha256: str, problem_sha256: str | None) -> Record | None:
        """Return the last judgement of a file's contents by a problem that has both tests and
        benchmarks, was not interrupted, has judged the first test and checked kernels; None where
        there is none.
        """
        return self._newest(
            "sha256 = ? AND tests > 0 AND benchmarks != '' AND outcome != 'interrupted' "
            "AND json_valid(verdict) AND json_extract(verdict, '$.problem_sha256') IS ? "
            "AND json_extract(verdict, '$.tests[0].status') != 'skipped' "
            "AND json_extract(verdict, '$.checked') IS NOT 0",
            *(sha256, problem_sha256),
        )

    def emulated(self, problem: str) -> Record | None:
        """Return the last judgement of a problem whose tests launched kernels that were emulated;
        None where there is none.
        """
        return self._newest(
            "json_valid(verdict) AND json_extract(verdict, '$.problem') = ? "
            "AND json_extract(verdict, '$.tests[0].emulated')",
            problem,
        )

    def _newest(self, condition: str, *values: Any) -> Record | None:
        newest = f"judgements.id = (SELECT MAX(id) FROM judgements WHERE {condition})"
        return self._find(newest, *values)

    def _find(self, condition: str, *values: Any) -> Record | None:
        columns = [*_columns, "content", "verdict AS verdict_object"]
        query = f"SELECT {', '.join(columns)} FROM judgements JOIN sources USING (sha256)"
        rows = self._rows(f"{query} WHERE {condition}", values)
        if not rows:
            return None
        found = _read(Record, rows[0])
        if found is None:
            hint = f"Delete or rename {self.path} to begin a new history."
            raise HistoryError(f"judgement {rows[0]['id']} cannot be read", hint)
        return found

    def _rows(self, query: str, values: tuple[Any, ...]) -> list[dict[str, Any]]:
        if not os.path.exists(self.path):
            return []
        with self._opened() as database:
            database.row_factory = sqlite3.Row
            return [dict(row) for row in database.execute(query, values)]

    @contextmanager
    def _opened(self) -> Iterator[sqlite3.Connection]:
        try:
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            for suffix in ("", "-journal", "-wal", "-shm"):  # SQLite would wait for a pipe
                each = self.path.with_name(f"{self.path.name}{suffix}")
                if each.exists() and not each.is_file():
                    raise OSError(f"{each.name} is no file")
            opened = sqlite3.connect(self.path, timeout=busy_s, isolation_level=None)
            with closing(opened) as database:
                self._prepare(database)
                yield database
        except (sqlite3.Error, OSError) as error:
            why = getattr(error, "strerror", None) or str(error)
            hint = "Nothing in it was changed. Rename it to begin a new one."
            if "locked" in why:
                hint = "Another process uses it: try again later."
            elif "readonly" in why or "read-only" in why.lower():
                hint = "Make the file and its folder writable."
            raise HistoryError(f"the history {self.path} cannot be used: {why}", hint) from error

    def _prepare(self, database: sqlite3.Connection) -> None:
        """Makes the tables of a new file."""
        database.execute("BEGIN")
        new = self._is_new(database)
        database.execute("COMMIT")
        if not new:
            return
        database.execute("BEGIN IMMEDIATE")
        if self._is_new(database):  # another process may have been faster
            for table in _tables:
                database.execute(table)
            database.execute(f"PRAGMA application_id = {_application}")
            database.execute(f"PRAGMA user_version = {version}")
        database.execute("COMMIT")

    def _is_new(self, database: sqlite3.Connection) -> bool:
        """Return whether there are no tables. Raises HistoryError for a file that is not ours."""
        ((found,),) = database.execute("PRAGMA user_version")
        ((application,),) = database.execute("PRAGMA application_id")
        ((tables,),) = database.execute("SELECT count(*) FROM sqlite_master")
        if tables and application != _application:
            hint = "Nothing in it was changed. Rename it to begin a new one."
            raise HistoryError(f"{self.path} is no history of nvfp4", hint)
        if tables and found != version:
            hint = "Nothing in it was changed. Use that version, or rename the file."
            raise HistoryError(f"another nvfp4 has written the history {self.path}", hint)
        return not tables


def _read(kind: type[E], row: dict[str, Any]) -> E | None:
    """Return a row as an entry; None where a value cannot be one of it."""
    try:
        texts = {name: json.loads(row[name]) for name in _json if name in row}
        found = record(kind, {**row, **texts, "best": bool(row.get("best"))})
        datetime.fromtimestamp(found.judged_at, timezone.utc)
    except (ValueError, TypeError, OverflowError, OSError, RecursionError):
        return None
    return found


def recorded(named: str | Path, history: History | None = None) -> Record | None:
    """Return the judgement with the number in a name; None if the name is a file's. Raises
    HistoryError if no judgement has that number."""
    number = whole_number(str(named))
    if number is None or os.path.isfile(named):
        return None
    return (history or History()).find(number)
