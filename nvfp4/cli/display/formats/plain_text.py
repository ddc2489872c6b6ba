"""What a person sees, without colours."""

import io

from rich.console import Console

from nvfp4.cli.display.brief import show_briefly
from nvfp4.cli.display.render import show
from nvfp4.cli.verdict import Verdict

_columns = 100


def write(verdict: Verdict) -> str:
    """The tables and sentences, a hundred columns wide."""
    page = io.StringIO()
    console = Console(file=page, width=_columns, highlight=False, color_system=None)
    (show_briefly if verdict.mistake else show)(console, verdict)
    return page.getvalue()
