"""Kernels of clusters in CUDA C++: of right ones nothing is said, of wrong ones what is wrong."""

import pytest
from clusters.cases import Case, cases, compile_to_ptx, expected_output, inputs, run

ALL = cases()


@pytest.fixture(scope="module")
def ptx(tmp_path_factory: pytest.TempPathFactory) -> str:
    return compile_to_ptx(tmp_path_factory.mktemp("clusters"))


@pytest.mark.parametrize("case", [c for c in ALL if c.right], ids=lambda case: case.name)
def test_a_right_kernel(ptx: str, case: Case) -> None:
    data = inputs()
    out, found = run(ptx, case, data)
    assert found == []
    assert (out == expected_output(case, data)).all()


@pytest.mark.parametrize("case", [c for c in ALL if not c.right], ids=lambda case: case.name)
def test_a_wrong_kernel(ptx: str, case: Case) -> None:
    _, found = run(ptx, case, inputs())
    codes = [code for code, _ in found]
    assert set(codes) & set(case.expected.split()), found
    if case.here:
        assert any(lines & set(case.here) for _, lines in found), (found, case.here)


def test_there_are_enough_of_both() -> None:
    assert len([case for case in ALL if case.right]) >= 12
    assert len([case for case in ALL if not case.right]) >= 20
