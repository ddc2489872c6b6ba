"""Submissions with wrong results: the message of each is kept beside it."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest
import torch
from conftest import seeded

from nvfp4.contract import reference
from nvfp4.judge.diagnosis import diagnose

folder = Path(__file__).parent / "broken" / "patterns"
shape = (256, 512, 2)


def message_of(path: Path) -> str:
    """What the judge says of a case on full-range inputs."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    with seeded(0):
        given, data = (
            tuple(each.cpu() for each in reference.generate_full_range_input(*shape, 1111))
            for _ in range(2)
        )
    output = module.custom_kernel(given).clone()
    expected = reference.ref_kernel(data)
    passed, message = reference.check_implementation(data, output, expected)
    assert not passed
    return f"{message}\n{diagnose(data, output, expected).text}\n"


@pytest.mark.parametrize("path", sorted(folder.glob("*.py")), ids=lambda path: path.stem)
def test_the_message_is_the_one_kept_beside_the_submission(path: Path) -> None:
    threads = torch.get_num_threads()
    try:
        assert message_of(path) == path.with_suffix(".txt").read_text(encoding="utf-8")
    finally:
        torch.set_num_threads(threads)


def test_there_are_enough() -> None:
    assert len(list(folder.glob("*.py"))) >= 12
