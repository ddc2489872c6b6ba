"""`--keep`: the PTX of emulated kernels, of those that fail as well."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from bot import Bot, case
from corpus import read

from nvfp4.records.options import Options

pytest.importorskip("cutlass")

pytestmark = pytest.mark.skipif(torch.cuda.is_available(), reason="nothing is emulated on a GPU")

FIELD = Path(__file__).parent / "field"


def kept(stage: Callable[[bytes], Bot], submission: str, folder: Path) -> list[str]:
    """The lines of the listing that a test of a submission leaves."""
    folder_of, _, name = submission.partition("/")
    source = read(FIELD / folder_of, name).source.encode()
    stage(source).judge("test", [case()], **Options(keep=str(folder)).as_variable())
    (listing,) = folder.glob("128x256x1/1_*.ptx")
    return listing.read_text().splitlines()


def test_a_launch_that_faults_is_kept_with_the_place(
    stage: Callable[[bytes], Bot], tmp_path: Path
) -> None:
    lines = kept(stage, "bounds/a_word_past_the_end", tmp_path)
    (fault,) = [line for line in lines if not line.startswith(" ")]
    assert fault.startswith("fault |")
    assert "ld.global" in fault


def test_a_launch_that_ends_is_kept_with_counts(
    stage: Callable[[bytes], Bot], tmp_path: Path
) -> None:
    lines = kept(stage, "template/pointers", tmp_path)
    assert any(line.split(" | ")[0].strip().isdigit() for line in lines)
    assert not any(line.startswith("fault") for line in lines)
