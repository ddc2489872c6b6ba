"""Writes docs/commands.md, the page of every command and option.

python -m scripts.commands_page > docs/commands.md
"""

import inspect
import sys
from collections import Counter
from collections.abc import Iterable

import click

from nvfp4.cli.main import main
from scripts.markdown import table

_head = """# Commands

Every command with its arguments and options. `nvfp4 COMMAND --help` says the same.
[using.md](using.md) shows how they work together. `python -m scripts.commands_page >
docs/commands.md` writes this page from the source.
"""

_common_words = """
## Common options

Commands that judge share these. Each command names those that it takes.
"""

_least_commands = 4
"""An option that so many commands declare alike is described once."""

_Row = tuple[str, str, str]
"""An option as the table has it: names, meaning, default."""


def page() -> str:
    """The whole page."""
    commands = {name: command for name, command in main.commands.items() if not command.hidden}
    times = Counter(_row(each) for command in commands.values() for each in _options(command))
    common: dict[str, _Row] = {}
    for row, number in times.items():
        if number >= _least_commands:
            common.setdefault(row[0], row)
    sections = (_section(name, command, common) for name, command in commands.items())
    return _head + "".join(sections) + _common_words + "\n" + _table(common.values())


def _section(name: str, command: click.Command, common: dict[str, _Row]) -> str:
    usage = " ".join(command.collect_usage_pieces(click.Context(command)))
    rows = [_row(each) for each in _options(command)]
    own = [row for row in rows if common.get(row[0]) != row]
    shared = [_without_values(row[0]) for row in rows if row not in own]
    return "\n".join(
        part
        for part in (
            f"\n## nvfp4 {name}\n",
            f"{inspect.cleandoc(command.help or '')}\n",
            _code(f"nvfp4 {name} {usage}"),
            _defaults(command),
            _table(own) if own else "",
            f"And of the [common options](#common-options): {', '.join(shared)}.\n"
            if shared
            else "",
            _code(command.epilog or ""),
        )
        if part
    )


def _options(command: click.Command) -> list[click.Option]:
    return [each for each in command.params if isinstance(each, click.Option) and not each.hidden]


def _defaults(command: click.Command) -> str:
    """What stands for an argument that is left out."""
    return "".join(
        f"{each.human_readable_name} is `{each.default}` unless given.\n"
        for each in command.params
        if isinstance(each, click.Argument) and isinstance(each.default, str)
    )


def _row(option: click.Option) -> _Row:
    record = option.get_help_record(click.Context(main))
    assert record is not None
    assert option.help
    names = record[0].replace(" INTEGER RANGE", " N").replace(" INTEGER", " N")
    names = names.replace(" FLOAT RANGE", " SECONDS")
    return names, option.help, "required" if option.required else _default(option)


def _default(option: click.Option) -> str:
    default = option.default
    if option.is_flag:
        return f"`{option.opts[0]}`" if default is True and option.secondary_opts else ""
    return f"`{default}`" if isinstance(default, (str, int, float)) else ""


def _without_values(names: str) -> str:
    """The names of an option, each in a code span."""
    return ", ".join(f"`{each.strip(',')}`" for each in names.split() if each.startswith("-"))


def _table(rows: Iterable[_Row]) -> str:
    shown = ((f"`{names}`", *others) for names, *others in rows)
    return table(("option", "meaning", "default"), shown) + "\n"


def _code(text: str) -> str:
    return f"```\n{text}\n```\n"


if __name__ == "__main__":
    sys.stdout.write(page())
