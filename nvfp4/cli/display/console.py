"""Where text goes: a terminal of some width, or a file or pipe, where no line is wrapped."""

import sys
from typing import NoReturn

from rich.console import Console
from rich.padding import Padding
from rich.text import Text


class Output(Console):
    """A console that raises BrokenPipeError when its output is closed, to end the command."""

    def on_broken_pipe(self) -> NoReturn:
        """Called by rich when a write has failed."""
        raise BrokenPipeError


def new_console(stderr: bool = False) -> Console:
    """A console on stdout or stderr. FORCE_COLOR brings colours, but no pipe becomes a terminal."""
    stream = sys.stderr if stderr else sys.stdout
    on_terminal = stream is not None and stream.isatty()
    return Output(stderr=stderr, highlight=False, force_interactive=None if on_terminal else False)


def columns_of(console: Console) -> int | None:
    """Return the width of the terminal; None if there is none: lines may have any length."""
    return console.width if console.is_interactive else None


def rule_of(console: Console) -> str:
    """Return the character that a line below a heading consists of."""
    return "-" if console.options.ascii_only else "─"


def say(console: Console, text: Text | str = "", style: str = "") -> None:
    """Prints text as it is, not as markup: wrapped between words on a terminal, where an indented
    line stays indented, and not elsewhere.
    """
    line = Text(text, style=style) if isinstance(text, str) else text
    indent = len(line.plain) - len(line.plain.lstrip(" "))
    if console.is_interactive and line.cell_len > console.width > 4 * indent > 0:
        console.print(Padding(line[indent:], (0, 0, 0, indent), expand=False))
    else:
        console.print(line, soft_wrap=not console.is_interactive)
