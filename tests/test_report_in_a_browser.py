"""A report in Chromium, where there is one: on a desktop and a phone, in light and in dark."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import browser
import pytest
from browser import Tab
from kept import invoke, kept_in, named
from screens.verdicts import verdicts
from test_html_report import sampled

from nvfp4.cli.history.database import History

pytest.importorskip("matplotlib")
pytest.importorskip("websockets")
pytestmark = pytest.mark.skipif(browser.PROGRAM is None, reason="needs Chromium")

HOSTILE = "<b onmouseover=alert(1)>bold</b><script>alert(1)</script><img src=http://a.b/c>.py"


@pytest.fixture(scope="module")
def tab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tab]:
    with browser.opened(tmp_path_factory.mktemp("profile")) as found:
        yield found


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A report of three judgements, the second of which is the fastest."""
    folder = tmp_path_factory.mktemp("report")
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("NVFP4_NO_LOG", raising=False)
        patch.setenv("XDG_DATA_HOME", str(folder))
        for number, factor in enumerate((1.0, 0.5, 2.0)):
            verdict = named(sampled(verdicts()["timed-passed"]), f"{number}{HOSTILE}")
            verdict.tests = [replace(each, output=HOSTILE) for each in verdict.tests]
            verdict.benchmarks = [
                replace(each, mean_us=each.mean_us and each.mean_us * factor)
                for each in verdict.benchmarks
            ]
            kept_in(History(), verdict, f"# {number} {HOSTILE * 9}\n".encode())
        arguments = ("--no-cost", "-o", str(folder / "page.html"), "1", "2", "3")
        done = invoke("report", *arguments)
        assert done.exit_code == 0, done.output
        yield folder / "page.html"


def boxes(tab: Tab, what: str) -> list[list[float]]:
    """Left, right, width and height of elements."""
    found: list[list[float]] = tab.value(
        f"[...document.querySelectorAll({what!r})].map(each => {{"
        "const box = each.getBoundingClientRect();"
        "return [box.left, box.right, box.width, box.height]; })"
    )
    return found


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [360, 1280])
def test_a_report_is_readable_and_asks_no_network(
    tab: Tab, page: Path, width: int, dark: bool
) -> None:
    tab.open(page, width, dark)
    assert tab.value("document.documentElement.scrollWidth") <= width, "it scrolls sideways"
    for left, right, wide, high in boxes(tab, "h2, h3, p, svg, .wide, nav"):
        assert left >= 0
        assert right <= width
        assert min(wide, high) > 10
    colours = "(each => [getComputedStyle(each).color, getComputedStyle(each).backgroundColor])"
    ink, ground = tab.value(f"{colours}(document.body)")
    assert (brightness(ink) > brightness(ground)) is dark
    for what in (".passed", ".note", "thead th", "td", "code"):
        (seen, _) = tab.value(f"{colours}(document.querySelector({what!r}))")
        assert contrast(seen, ground) >= 4.5, what
    assert tab.value("document.querySelectorAll('main b, main script, img').length") == 0
    assert tab.requests == [page.as_uri()]
    assert tab.messages == []


def test_the_plots_have_their_points(tab: Tab, page: Path) -> None:
    tab.open(page, 360, False)
    svg = "section:nth-of-type(2) svg[aria-label^={}] "
    inside = """(what => [...document.querySelectorAll(what)].filter(each => {
        const box = each.getBoundingClientRect(), all = each.closest('svg').getBoundingClientRect();
        return box.right > all.left && box.right <= all.right + 1 && box.left >= all.left - 1
            && box.bottom <= all.bottom + 1 && box.width + box.height > 3; }).length)"""

    def count(plot: str, what: str) -> Any:
        return tab.value(f"{inside}({svg.format(plot) + what!r})")

    assert count("'Each benchmark'", "path[style*='--first']") == 3 + 1, "bars, and the legend's"
    assert count("'Each benchmark'", "use[style*='--third']") == 3 + 1
    assert count("'How long'", "path[style*='--first']") > 3 * 5
    assert count("'The geometric mean'", "use[style*='--first']") == 3 + 1


def test_a_table_is_sorted_by_the_heading_that_is_pressed(tab: Tab, page: Path) -> None:
    tab.open(page, 360, False)

    def pressed(heading: str) -> tuple[list[str], Any]:
        """The first letters of the rows then, and how the table says it is sorted."""
        tab.value(
            "[...document.querySelectorAll('#comparison th button')]"
            f".find(each => each.textContent == {heading!r}).click()"
        )
        rows = tab.value(
            "[...document.querySelectorAll('#comparison tbody tr')]"
            ".map(row => row.cells[0].textContent[0])"
        )
        marked = tab.value(
            "[...document.querySelectorAll('#comparison th[aria-sort]')]"
            ".map(each => each.textContent + ' ' + each.ariaSort)"
        )
        return rows, marked

    assert pressed("geomean us") == (["2", "1", "3"], ["geomean us ascending"])
    assert pressed("geomean us") == (["3", "1", "2"], ["geomean us descending"])
    assert pressed("file") == (["1", "2", "3"], ["file ascending"])
    assert tab.messages == []


def channels(colour: str) -> list[float]:
    """Of rgb(...), between 0 and 1."""
    return [int(each) / 255 for each in colour.partition("(")[2].rstrip(")").split(",")[:3]]


def brightness(colour: str) -> float:
    """The relative luminance of WCAG 2."""
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels(colour)]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: str, other: str) -> float:
    """Of two colours, as WCAG 2 has it."""
    dark, light = sorted(map(brightness, (one, other)))
    return (light + 0.05) / (dark + 0.05)
