"""Every submission of the corpus gets the verdict that is expected of it."""

from __future__ import annotations

import importlib.util

import pytest

pytest.importorskip("cutlass")

from field.corpus import Entry, load
from field.judged import complaint, judged_apart, prepare

HAS_TRITON = importlib.util.find_spec("triton") is not None
ENTRIES = [entry for entry in load() if HAS_TRITON or not entry.name.startswith("triton/")]
# nvcc takes seconds for each. `make corpus` judges what is not named here, and what repeats others.
QUICK_CUDA = {
    *("block_reduce", "constant_table", "files_cp_async", "nvrtc_and_driver", "persistent"),
    *("ptx_pointers", "split_k_ticket", "two_modules", "wide_loads", "mask_of_half_a_warp"),
    *("block_reduce_no_barrier", "more_than_the_launch_bounds", "next_word_past_the_end"),
    *("undefined_identifier", "large_shared_no_attribute", "slots_in_order_of_arrival"),
}
# Each has a mistake, or is right, as one of the same folder or as the one named beside it.
REPEATS = {
    "bounds": {"grid_one_too_large", "guard_off_by_one", "sfb_past_the_last_row"},
    "launch": {"counter_steps_over_its_end"},  # tests/broken/faults
    "misreadings": {
        *("b_row_one", "both_nibbles_swapped", "scales_as_e5m2", "scales_of_the_first_batch"),
        *("scales_one_block_late", "signs_ignored", "swapped_nibbles"),
    },
    "pipelines": {"cp_async_no_wait", "tma_counts_two_arrivals", "tma_swizzled"},
    "races": {"result_of_the_last_split", "split_k_no_atomics_torch"},
    "shared": {"block_reduce_eight_sums"},  # warps/shared_tree_too_wide
    "triton": {"scales_of_eight", "split_k_without_atomics"},  # misreadings, races
}


def is_quick(entry: Entry) -> bool:
    """Whether it takes little to compile, or stands for others of its kind."""
    folder, _, name = entry.name.partition("/")
    return name in QUICK_CUDA if folder == "cuda" else name not in REPEATS.get(folder, ())


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
