"""How every command begins and ends: encodings, signals, broken pipes, full disks, exit codes."""

import errno
import os
import sys
from typing import Any, NoReturn

import click

from nvfp4.cli import errors as exits
from nvfp4.cli.errors import SetupError, print_error

_no_room = (*exits.no_room_codes, errno.EIO)


class Command(click.Command):
    """A command whose epilog is examples, a line each."""

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Writes the examples as they are, not wrapped."""
        if self.epilog:
            with formatter.section("Examples"):
                for line in self.epilog.strip().splitlines():
                    formatter.write(f"{'':>{formatter.current_indent}}{line.strip()}\n")


class Commands(click.Group):
    """A group whose commands end with exit code 2 where nothing could be judged."""

    command_class = Command

    def main(self, *args: Any, **kwargs: Any) -> Any:
        """Run a command and flush its output while an error can still be reported."""
        for size in ("COLUMNS", "LINES"):  # for rich, which prints nothing where it is 0
            if not os.environ.get(size, "").strip("0").isdecimal():
                os.environ.pop(size, None)
        os.umask(os.umask(0o077) & 0o077)  # our own folders must be ours
        for stream in (sys.stdout, sys.stderr):
            # What an encoding lacks, or a file name holds that is no text, becomes an escape.
            if hasattr(stream, "reconfigure"):
                stream.reconfigure(errors="backslashreplace")
        try:
            try:
                return super().main(*args, **kwargs)
            finally:
                for stream in (sys.stdout, sys.stderr):
                    if stream is not None and not stream.closed:
                        stream.flush()
        except OSError as error:
            _end_unread(error)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Notes whether an error is to be JSON."""
        ctx.meta[__name__] = "--json" in args
        return super().parse_args(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        """Runs a command and turns its end into an exit code and at most one sentence."""
        exits.listen()
        try:
            if os.path.expanduser("~") == "~":
                raise SetupError("no home folder is known", "Set HOME to a folder of yours.")
            return super().invoke(ctx)
        except (SetupError, click.UsageError) as error:
            print_error(error, as_json=ctx.meta[__name__])
            ctx.exit(exits.setup)
        except KeyboardInterrupt:
            click.echo("interrupted", err=True)
            ctx.exit(exits.interrupted())
        except BrokenPipeError as error:
            _end_unread(error)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Lists every command with its whole first sentence."""
        commands = {name: self.get_command(ctx, name) for name in self.list_commands(ctx)}
        with formatter.section("Commands"):
            shown = [(name, each) for name, each in commands.items() if each and not each.hidden]
            formatter.write_dl([(n, each.get_short_help_str(limit=1000)) for n, each in shown])


def _end_unread(error: OSError) -> NoReturn:
    """Ends a command whose output cannot be written, or that the system refuses descriptors,
    processes or room for temporary files; passes on an error of a file that is named."""
    if not isinstance(error, BrokenPipeError) and error.filename and error.errno not in _no_room:
        raise error
    # What is left in the buffers must not fail once more when Python ends.
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for fd in (1, 2) if isinstance(error, BrokenPipeError) else (1,):
        os.dup2(nowhere, fd)
    if isinstance(error, BrokenPipeError):
        sys.exit(exits.unread)
    try:
        what = "output cannot be written" if error.errno in _no_room else "judge cannot start"
        os.write(2, f"error: the {what}: {error.strerror}\n".encode())
    except OSError:
        os.dup2(nowhere, 2)
    sys.exit(exits.setup)
