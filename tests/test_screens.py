"""What a user sees, as text in tests/screens: on terminals of three widths, and piped."""

import fcntl
import io
import os
import pty
import re
import select
import socket
import struct
import termios
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyte
import pytest
from bot import root
from click.testing import CliRunner
from conftest import start_python
from rich.console import Console
from screens.verdicts import Clock, play, verdicts
from texts import expect

from nvfp4.cli.display.console import Output
from nvfp4.cli.display.progress import observed
from nvfp4.cli.display.render import show
from nvfp4.cli.main import main

screens = Path(__file__).resolve().parent / "screens"
sizes = {80: 24, 100: 30, 160: 50}
"""Columns to lines."""


def compare(name: str, text: str) -> None:
    """With the screen of that name."""
    lines = "\n".join(line.rstrip() for line in text.splitlines())
    expect(screens / f"{name}.txt", lines.rstrip() + "\n")


class Terminal:
    """A terminal without a window: what was written to it, and what it shows."""

    def __init__(self, columns: int) -> None:
        self._screen = pyte.HistoryScreen(columns, sizes[columns], history=200)
        self._stream = pyte.ByteStream(self._screen)

    def feed(self, written: bytes) -> None:
        self._stream.feed(written)

    def text(self, with_history: bool = False) -> str:
        shown = self._screen.display
        if with_history:
            above = self._screen.history.top
            columns = range(self._screen.columns)
            shown = ["".join(row[column].data for column in columns) for row in above] + shown
        return "\n".join(line.rstrip() for line in shown).rstrip()


def moments(columns: int) -> Iterator[tuple[str, Terminal]]:
    """The judgement of ``screens/judgement.py`` on a pseudo-terminal, stopped where it says so."""
    terminal = Terminal(columns)
    ours, theirs = socket.socketpair()
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", sizes[columns], columns, 0, 0))
    ignored = ("COLUMNS", "LINES", "NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE")
    inherited = {name: value for name, value in os.environ.items() if name not in ignored}
    path = os.pathsep.join([str(root), str(screens.parent)])
    given: Any = dict.fromkeys(("stdin", "stdout", "stderr"), slave)
    given["env"] = {**inherited, "TERM": "xterm-256color", "PYTHONUTF8": "1", "PYTHONPATH": path}
    fd = theirs.fileno()
    process = start_python(str(screens / "judgement.py"), str(fd), pass_fds=[fd], **given)
    os.close(slave)
    theirs.close()
    try:
        with ours, ours.makefile("rwb", buffering=0) as told:
            while True:
                ready, _, _ = select.select([master, ours.fileno()], [], [], 60)
                assert ready, "it hangs"
                if master in ready:
                    try:
                        terminal.feed(os.read(master, 1 << 16))
                    except OSError:  # the other end is closed
                        break
                elif moment := told.readline():
                    yield moment.decode().strip(), terminal
                    told.write(b"go on\n")
                else:
                    break
    finally:
        process.kill()
        process.wait()
        os.close(master)


@pytest.mark.parametrize("columns", sizes)
def test_a_terminal_shows_a_live_line_and_then_the_verdict(columns: int) -> None:
    seen = []
    for moment, terminal in moments(columns):
        seen.append(moment)
        text = terminal.text(with_history=moment == "over")
        assert max(map(len, text.splitlines())) <= columns
        if moment == "over":  # what is drawn before depends on when
            compare(f"live-{moment}.{columns}", text)
    assert seen == ["importing", "compiling", "repeating", "emulating", "over"]


def written(name: str, encoding: str = "utf-8", columns: int | None = None) -> str:
    """A verdict as it is printed, with colours on a terminal of so many columns, else piped."""
    raw = io.BytesIO()
    file = io.TextIOWrapper(raw, encoding=encoding, errors="backslashreplace", newline="")
    console = Output(
        file=file,
        force_terminal=columns is not None,
        force_interactive=columns is not None,
        width=columns,
        highlight=False,
        color_system="standard" if columns else None,
    )
    show(console, verdicts()[name])
    file.flush()
    return raw.getvalue().decode(encoding)


@pytest.mark.parametrize("columns", sizes)
@pytest.mark.parametrize("name", verdicts())
def test_a_verdict_fits_the_terminal(name: str, columns: int) -> None:
    terminal = Terminal(columns)
    terminal.feed(written(name, columns=columns).replace("\n", "\r\n").encode())
    compare(f"{name}.{columns}", terminal.text(with_history=True))


@pytest.mark.parametrize("name", verdicts())
def test_a_piped_verdict_is_wrapped_nowhere(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    text = written(name)
    assert "\x1b" not in text
    compare(f"{name}.piped", text)
    monkeypatch.setenv("COLUMNS", "40")
    assert written(name) == text


def test_a_piped_course_has_one_line_a_case() -> None:
    file, clock = io.StringIO(), Clock()
    with observed(Console(file=file, width=40), clock) as observer:
        assert len(list(play(observer, clock))) == 4
    lines = file.getvalue().splitlines()
    assert len([line for line in lines if line.startswith("test ")]) == 20
    assert len([line for line in lines if line.startswith("benchmark ")]) == 3
    compare("live.piped", file.getvalue())


@pytest.mark.parametrize("columns", [20, 30, 40, 60, 80, 100, 160])
@pytest.mark.parametrize("name", verdicts())
def test_no_number_is_cut_on_any_terminal(name: str, columns: int) -> None:
    """Each number of the narrow table is one of the piped one."""
    numbers = re.compile(r"[\d,]+\.\d+|\d[\d,]*")
    plain = re.sub(r"\x1b\[[\d;]*m", "", written(name, columns=columns))
    assert "…" not in plain
    assert set(numbers.findall(plain)) <= set(numbers.findall(written(name)))


@pytest.mark.parametrize("name", verdicts())
@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
def test_a_poor_encoding_still_shows_the_tables(encoding: str, name: str) -> None:
    text = written(name, encoding)
    assert "----" in text
    assert "\\u" not in text


def test_the_list_of_commands_fits_and_nothing_is_cut() -> None:
    for columns in (60, 80, 100):
        text = CliRunner().invoke(main, ["--help"], terminal_width=columns).output
        assert "..." not in text.partition("Commands:")[2]
        assert max(map(len, text.splitlines())) <= columns


def test_the_corpus_is_listed_and_nothing_is_judged() -> None:
    lines = CliRunner().invoke(main, ["selftest", "--list", "skipped_nibbles", "colours"]).output
    honest, cheat = lines.splitlines()
    assert honest.split()[:2] == ["honest", "colours"]
    assert cheat.split()[:3:2] == ["cheat", "skipped_nibbles"]


@pytest.mark.parametrize("command", main.commands)
def test_every_command_has_two_examples(command: str) -> None:
    text = CliRunner().invoke(main, [command, "--help"], terminal_width=40).output
    assert len(re.findall(rf"^  (nvfp4 {command}\b.*)$", text, re.MULTILINE)) == 2
