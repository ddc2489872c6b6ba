"""Each finding says which rule of which manual it breaks."""

import re
from collections.abc import Iterator

import pytest

from nvfp4.emulator import errors
from nvfp4.emulator.report import noted
from nvfp4.records.launch import Note
from scripts.codes import finding_codes

NO_MANUAL = {
    *("output_dtype", "tolerance", "autotune", "own_stream", "software_conversion"),
    "input_changed",
}
"""What the contest or the machine decides."""


def classes(base: type[errors.EmulatorError]) -> Iterator[type[errors.EmulatorError]]:
    for each in base.__subclasses__():
        yield each
        yield from classes(each)


@pytest.mark.parametrize("code", sorted(set(finding_codes) - NO_MANUAL - {"stream.unordered"}))
def test_every_kind_of_finding_names_a_manual_and_a_section(code: str) -> None:
    found = [each for each in classes(errors.EmulatorError) if each.code == code]
    assert found
    for each in found:
        assert each.rule is not None
        assert re.fullmatch(r"(PTX ISA|CUDA C\+\+ Programming Guide), [^:]+: [^\n]+", each.rule)
        assert len(each.rule) <= 200, "it stands in a record of limited length"


def test_a_note_on_streams_names_its_section_too() -> None:
    found = noted(Note("stream.unordered", "it may still run", None, None, None), "kernel")
    assert found.rule is not None
    assert found.rule.startswith("CUDA C++ Programming Guide, Streams: ")
    assert noted(Note("autotune", "one of several", None, None, None), "kernel").rule is None
