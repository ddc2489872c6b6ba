"""Writes docs/codes.md, the page of every code that programs can meet.

python -m scripts.codes_page > docs/codes.md
"""

import sys
from collections.abc import Iterator, Mapping

import nvfp4.capture.cuda.compilers
import nvfp4.capture.patches
import nvfp4.retarget.errors
import nvfp4.retarget.nvcc
from nvfp4.cli.batch.lines import batch_codes
from nvfp4.emulator.errors import EmulatorError
from nvfp4.records.launch_errors import CaptureError
from scripts.codes import finding_codes, judge_codes, own_records, setup_codes, warning_codes
from scripts.markdown import line_of, table

_head = """# Codes

Every code that `--json` and the other formats can hold. A code keeps its meaning; others may be
added. `python -m scripts.codes_page > docs/codes.md` writes this page from the source.
"""


def subclasses(kind: type[Exception]) -> Iterator[type[Exception]]:
    """A class and all that are derived from it, without those that are bases alone."""
    if not (kind.__doc__ or "").startswith("Base of"):
        yield kind
    for each in kind.__subclasses__():
        if getattr(each, "failure", "") != "setup":  # nothing is judged then
            yield from subclasses(each)


def codes_of(kind: type[Exception]) -> dict[str, str]:
    """Code to meaning, for a family of errors."""
    found: dict[str, str] = {}

    # Of those that share a code the base, else the first by name: not by what is imported first.
    def place(each: type[Exception]) -> tuple[int, str, str]:
        return len(each.__mro__), each.__module__, each.__qualname__

    for each in sorted(subclasses(kind), key=place):
        found.setdefault(code_of(each), line_of((each.__doc__ or "").partition("\n\n")[0]))
    return dict(sorted(found.items()))


def code_of(kind: type[Exception]) -> str:
    """The code of a class of errors, as a failure has it."""
    code: str = getattr(kind, "verdict_code", "") or f"kernel.{getattr(kind, 'code', '')}"
    return code


def _section(title: str, words: str, codes: Mapping[str, str]) -> str:
    rows = ((f"`{code}`", meaning) for code, meaning in codes.items())
    return f"\n## {title}\n\n{words}\n\n{table(('code', 'meaning'), rows)}\n"


def page() -> str:
    """The whole page."""
    failure = "`failure.code` where"
    sections = (
        (
            "Faults of a kernel",
            f"{failure} the emulator stopped a launch. With the place; accesses to memory with "
            "`arguments`.",
            codes_of(EmulatorError),
        ),
        (
            "Launches and builds",
            f"{failure} a launch or a build was refused before a kernel ran.",
            codes_of(CaptureError),
        ),
        (
            "Retargeting",
            "`failure.code` on a GPU that a kernel was not compiled for.",
            codes_of(nvfp4.retarget.errors.RetargetError),
        ),
        ("Exceptions", f"{failure} Python raised.", own_records),
        ("What the judge refuses", f"{failure} the judge itself says why.", judge_codes),
        ("Findings", "`code` of an element of `findings`.", finding_codes),
        ("Warnings", "`code` of an element of `warnings`.", warning_codes),
        ("Nothing was judged", "`error.code`; the exit code is 2.", setup_codes),
        (
            "One file of a batch was not judged",
            "`error.code` in a line of `nvfp4 batch`, or one of the last table.",
            batch_codes,
        ),
    )
    return _head + "".join(_section(*each) for each in sections)


if __name__ == "__main__":
    sys.stdout.write(page())
