"""`nvfp4 report`: what it is about, the page, the file."""

from __future__ import annotations

from collections.abc import Sequence

from nvfp4.cli.judging.invocation import Invocation, check_output, write_output
from nvfp4.cli.report.page import report_page
from nvfp4.cli.report.plots import load_pyplot
from nvfp4.cli.report.subjects import load_subjects


def write_report(named: Sequence[str], invocation: Invocation, with_cost: bool) -> int:
    """Writes a page about these judgements or files to `invocation.output`; returns its bytes.

    with_cost: whether a call of each is emulated, for the cost of its lines. Raises SetupError,
    before anything is judged where that is possible.
    """
    assert invocation.output is not None
    check_output(invocation.output)
    load_pyplot("a report")
    page = report_page(load_subjects(named, invocation), with_cost)
    write_output(invocation.output, page)
    return invocation.output.stat().st_size
