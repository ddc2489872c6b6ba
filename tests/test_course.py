"""What the live rows say: phases, elapsed and expected times."""

from __future__ import annotations

import pytest
from bot import case
from screens.verdicts import Clock, cpu, gpu

from nvfp4.capture import activity
from nvfp4.cli.display.progress_model import Course, Expectation
from nvfp4.cli.problem import Shape
from nvfp4.cli.text import seconds
from nvfp4.cli.verdict import Device, full_range_suffix


def doing(course: Course) -> list[str]:
    return [course.doing(row) for row in course.rows]


def test_a_case_is_imported_compiled_and_emulated_before_it_passes() -> None:
    course = Course(Clock())
    course.phase("tests", [case(), case(m=256)])
    assert doing(course) == ["starting", "waiting"]
    course.on_device(cpu)
    assert doing(course) == ["importing", "waiting"]
    course.activity("compiling")
    assert doing(course) == ["compiling", "waiting"]
    course.loaded()
    course.activity("running")
    assert doing(course) == ["waiting", "waiting"]
    course.started(0)
    for word in ("running", "compiling", "emulating"):
        course.activity(word)
        assert doing(course) == [word, "waiting"]
    course.finished(case(), "contest", "pass")
    assert doing(course) == ["pass", "waiting"]


@pytest.mark.parametrize(("device", "word"), [(gpu, "timing"), (cpu, "running")])
def test_only_a_gpu_is_said_to_time(device: Device, word: str) -> None:
    course = Course(Clock())
    course.phase("benchmarks", [case()])
    course.on_device(device)
    course.loaded()
    course.started(0)
    assert doing(course) == [word]


def test_a_case_that_fails_in_a_fresh_process_keeps_its_time() -> None:
    clock = Clock()
    course = Course(clock)
    course.phase("tests", [case(), case() + full_range_suffix])
    course.loaded()
    for index, inputs in enumerate(("contest", "full")):
        course.started(index)
        clock.passes(2.0)
        course.finished(case(), inputs, "pass")
    clock.passes(5.0)
    row = course.finished(case(), "contest", "fail")
    assert row is course.rows[0]
    assert doing(course) == ["fail", "pass"]
    assert course.seconds(row) == 2.0


def test_the_same_shape_is_expected_to_take_as_long_again() -> None:
    expected = Expectation()
    expected.note(Shape(128, 256, 1), 3.0)
    assert expected.seconds(Shape(128, 256, 1)) == 3.0
    assert expected.seconds(Shape(256, 256, 1)) is None


def test_other_shapes_are_expected_by_their_size() -> None:
    expected = Expectation()
    for l in (1, 2, 4):
        expected.note(Shape(128, 256, l), 1.0 + 0.5 * l)
    assert expected.seconds(Shape(128, 256, 8)) == pytest.approx(5.0)


def test_a_small_case_that_took_long_lets_no_large_one_take_less_than_nothing() -> None:
    expected = Expectation()
    expected.note(Shape(128, 256, 1), 9.0)
    expected.note(Shape(128, 256, 2), 1.0)
    assert expected.seconds(Shape(128, 256, 100)) == pytest.approx(5.0)


def test_benchmarks_are_expected_by_the_tests_only_where_both_are_emulated() -> None:
    clock = Clock()
    course = Course(clock)
    course.phase("tests", [case(), case(m=256)])
    for index, m in enumerate((128, 256)):
        course.started(index)
        clock.passes(1.0)
        course.finished(case(m=m), "contest", "pass")
    course.phase("benchmarks", [case(m=512)])
    [*_, benchmark] = course.rows
    assert course.expected(benchmark) is None
    course.activity("emulating")
    assert course.expected(benchmark) == pytest.approx(1.0)


def test_activities_nest_and_are_told_when_they_change() -> None:
    told: list[str] = []
    activity.tell(told.append)
    try:
        with activity.busy("importing"), activity.busy("compiling"), activity.busy("compiling"):
            pass
    finally:
        activity.tell(None)
    assert told == ["importing", "compiling", "importing", "running"]


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.04, "0.0 s"), (17.21, "17.2 s"), (119.9, "119.9 s"), (185.4, "3 min 5 s")],
)
def test_seconds_are_shown_in_minutes_from_two_on(value: float, text: str) -> None:
    assert seconds(value) == text
