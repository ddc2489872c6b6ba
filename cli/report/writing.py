"""`nvfp4 report`: what it is about, the page, the file."""

from __future__ import annotations

from collections.abc import Sequence

from nvfp4.cli.judging import Options, check_output, write_output
from nvfp4.cli.plotting import load_pyplot
from nvfp4.cli.report.page import report_page
from nvfp4.cli.report.subjects import load_subjects


def write_report(named: Sequence[str], options: Options, with_cost: bool) -> int:
    """Writes a page about these judgements or files to `options.output`; returns its bytes.

    with_cost: whether a call of each is emulated, for the cost of its lines. Raises SetupError,
    before anything is judged where that is possible.
    """
    assert options.output is not None
    check_output(options.output)
    load_pyplot("a report")
    page = report_page(load_subjects(named, options), with_cost)
    write_output(options.output, page)
    return options.output.stat().st_size
