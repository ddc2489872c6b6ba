"""Every submission of the corpus gets the verdict that is expected of it."""

from __future__ import annotations

import importlib.util

import pytest

pytest.importorskip("cutlass")

from field.corpus import Entry, load
from field.judged import complaint, judged_apart, prepare

HAS_TRITON = importlib.util.find_spec("triton") is not None
ENTRIES = [entry for entry in load() if HAS_TRITON or not entry.name.startswith("triton/")]
# nvcc takes seconds for each: the others are judged by `make corpus`.
QUICK_CUDA = {
    *("block_reduce", "constant_table", "files_cp_async", "nvrtc_and_driver", "persistent"),
    *("ptx_pointers", "split_k_ticket", "two_modules", "wide_loads", "mask_of_half_a_warp"),
    *("block_reduce_no_barrier", "more_than_the_launch_bounds", "next_word_past_the_end"),
    *("keeps_the_first_k", "undefined_identifier", "large_shared_no_attribute"),
}


def is_quick(entry: Entry) -> bool:
    """Whether it takes little to compile, or stands for others of its kind."""
    folder, _, name = entry.name.partition("/")
    return folder != "cuda" or name in QUICK_CUDA


QUICK = [entry for entry in ENTRIES if is_quick(entry)]
SLOW = [entry for entry in ENTRIES if not is_quick(entry)]


@pytest.fixture(scope="module", autouse=True)
def prepared() -> None:
    prepare()


@pytest.mark.parametrize("entry", QUICK, ids=lambda entry: entry.name)
def test_a_submission_gets_its_verdict(entry: Entry) -> None:
    said = complaint(entry, judged_apart(entry))
    assert said is None, said


@pytest.mark.corpus
@pytest.mark.parametrize("entry", SLOW, ids=lambda entry: entry.name)
def test_one_of_the_rest_gets_its_verdict(entry: Entry) -> None:
    said = complaint(entry, judged_apart(entry))
    assert said is None, said
