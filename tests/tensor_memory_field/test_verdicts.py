"""Every kernel of the corpus is judged as what it is."""

from pathlib import Path

import pytest

pytest.importorskip("cutlass")
pytest.importorskip("cuda.bindings")

from corpus import Submission, load_all

from tensor_memory_field.judging import complaint, expectation, judge_apart

NOT_WAITED = (
    "a load counts as waited for where its value is used: CUTLASS's epilogues, in C++ and in CuTe "
    "DSL, have tcgen05.wait::ld behind their last load alone"
)

MISJUDGED = {
    "allocation/load_not_waited": NOT_WAITED,
    "clusters/turns_by_one_lane_alone": "clocks belong to warps, so that a lane arrives for all that "
    "its warp has done",
    "cute/load_not_waited": NOT_WAITED,
}
"""Names of cases, and what the judge does not see, or blames."""


def marks(case: Submission) -> list[pytest.MarkDecorator]:
    marks = []
    if "quick" not in case.directives:
        marks.append(pytest.mark.corpus)
    if reason := MISJUDGED.get(case.id):
        marks.append(pytest.mark.xfail(strict=True, reason=reason))
    return marks


ALL = load_all(Path(__file__).parent)
CASES = [pytest.param(case, id=case.id, marks=marks(case)) for case in ALL]


@pytest.mark.parametrize("case", CASES)
@pytest.mark.usefixtures("prepared")
def test_a_kernel_is_judged_as_what_it_is(case: Submission, tmp_path: Path) -> None:
    said = complaint(case, judge_apart(case.write(tmp_path)))
    assert said is None, said


def test_the_corpus_holds_right_and_wrong_ones_in_both_languages() -> None:
    for in_cute, least_right, least_wrong in ((True, 8, 12), (False, 32, 48)):
        cases = [case for case in ALL if (case.folder.name == "cute") == in_cute]
        right = sum(not expectation(case)[0] for case in cases)
        assert right >= least_right
        assert len(cases) - right >= least_wrong


def test_what_is_misjudged_is_in_the_corpus() -> None:
    assert set(MISJUDGED) <= {case.id for case in ALL}
