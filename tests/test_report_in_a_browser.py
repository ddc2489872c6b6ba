"""A report in Chromium, where there is one: on a desktop and a phone, in light and in dark."""

import json
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from kept import kept_in, named, succeeds
from screens.verdicts import verdicts

from nvfp4.cli.history.database import History

pytest.importorskip("websockets")

PROGRAM = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)

_START_S, _ANSWER_S = 60.0, 30.0
_QUIET = (
    *("--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run"),
    *("--disable-background-networking", "--disable-sync", "--mute-audio"),
)


class Tab:
    """A page that is open. messages: what its console shows. requests: addresses it asked for."""

    def __init__(self, socket: Any) -> None:
        self._socket = socket
        self._session: dict[str, str] = {}
        self._asked = self._loaded = 0
        self.messages: list[str] = []
        self.requests: list[str] = []
        target = self.ask("Target.createTarget", url="about:blank")["targetId"]
        attached = self.ask("Target.attachToTarget", targetId=target, flatten=True)
        self._session = {"sessionId": attached["sessionId"]}
        for domain in ("Page", "Network", "Log", "Runtime"):
            self.ask(f"{domain}.enable")

    def ask(self, method: str, **parameters: Any) -> dict[str, Any]:
        """The result of a command."""
        self._asked += 1
        command = {"id": self._asked, "method": method, "params": parameters}
        self._socket.send(json.dumps({**command, **self._session}))
        while True:
            said = self._next()
            if said.get("id") == self._asked:
                assert "error" not in said, said
                return said["result"]

    def _next(self) -> dict[str, Any]:
        said: dict[str, Any] = json.loads(self._socket.recv(timeout=_ANSWER_S))
        parameters = said.get("params", {})
        match said.get("method"):
            case "Runtime.consoleAPICalled" | "Runtime.exceptionThrown" | "Log.entryAdded":
                self.messages.append(json.dumps(parameters))
            case "Network.requestWillBeSent":
                self.requests.append(parameters["request"]["url"])
            case "Page.loadEventFired":
                self._loaded += 1
        return said

    def open(self, path: Path, width: int, dark: bool) -> None:
        """Shows a file on a screen of this width, until it is loaded."""
        self.messages.clear()
        self.requests.clear()
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.ask("Emulation.setEmulatedMedia", features=[scheme])
        self.ask(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=900,
            deviceScaleFactor=1,
            mobile=width < 600,
        )
        loaded = self._loaded
        self.ask("Page.navigate", url=path.as_uri())
        while self._loaded == loaded:
            self._next()

    def value(self, expression: str) -> Any:
        """Of an expression in the page."""
        said = self.ask(
            "Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True
        )
        assert "exceptionDetails" not in said, said
        return said["result"].get("value")


@contextmanager
def opened(folder: Path) -> Iterator[Tab]:
    """A tab of a browser without a window, which keeps what it needs in a folder."""
    from websockets.sync.client import connect

    assert PROGRAM
    command = [PROGRAM, "--headless=new", *_QUIET]
    command += ["--remote-debugging-port=0", f"--user-data-dir={folder}", "about:blank"]
    process = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        port, address = _port(folder / "DevToolsActivePort", process)
        with connect(f"ws://127.0.0.1:{port}{address}", max_size=None) as socket:
            yield Tab(socket)
    finally:
        process.terminate()
        process.wait(_ANSWER_S)


def _port(file: Path, process: subprocess.Popen[bytes]) -> tuple[str, str]:
    deadline = time.monotonic() + _START_S
    while time.monotonic() < deadline and process.poll() is None:
        lines = file.read_text().splitlines() if file.is_file() else []
        if len(lines) == 2:
            return lines[0], lines[1]
        time.sleep(0.05)
    raise TimeoutError("the browser does not start")


pytestmark = pytest.mark.skipif(PROGRAM is None, reason="needs Chromium")

HOSTILE = "<b onmouseover=alert(1)>bold</b><script>alert(1)</script><img src=http://a.b/c>.py"


@pytest.fixture(scope="module")
def tab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tab]:
    with opened(tmp_path_factory.mktemp("profile")) as found:
        yield found


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A report of three judgements, the second of which is the fastest."""
    folder = tmp_path_factory.mktemp("report")
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("NVFP4_NO_LOG", raising=False)
        patch.setenv("XDG_DATA_HOME", str(folder))
        for number, factor in enumerate((1.0, 0.5, 2.0)):
            verdict = named(verdicts()["timed-passed"], f"{number}{HOSTILE}")
            verdict.tests = [replace(each, output=HOSTILE) for each in verdict.tests]
            verdict.benchmarks = [
                replace(each, mean_us=each.mean_us and each.mean_us * factor)
                for each in verdict.benchmarks
            ]
            kept_in(History(), verdict, f"# {number} {HOSTILE * 9}\n".encode())
        succeeds("report", "--no-cost", "-o", str(folder / "page.html"), "1", "2", "3")
        yield folder / "page.html"


def boxes(tab: Tab, what: str) -> list[list[float]]:
    """Left, right, width and height of elements."""
    return tab.value(
        f"[...document.querySelectorAll({what!r})].map(each => {{"
        "const box = each.getBoundingClientRect();"
        "return [box.left, box.right, box.width, box.height]; })"
    )


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [360, 1280])
def test_a_report_is_readable_and_asks_no_network(
    tab: Tab, page: Path, width: int, dark: bool
) -> None:
    tab.open(page, width, dark)
    assert tab.value("document.documentElement.scrollWidth") <= width, "it scrolls sideways"
    for left, right, wide, high in boxes(tab, "h2, h3, p, .wide, nav"):
        assert left >= 0
        assert right <= width
        assert min(wide, high) > 10
    colours = "(each => [getComputedStyle(each).color, getComputedStyle(each).backgroundColor])"
    ink, ground = tab.value(f"{colours}(document.body)")
    assert (brightness(ink) > brightness(ground)) is dark
    for what in (".passed", ".note", "thead th", "td", "code"):
        (seen, _) = tab.value(f"{colours}(document.querySelector({what!r}))")
        dark_one, light_one = sorted(map(brightness, (seen, ground)))
        assert (light_one + 0.05) / (dark_one + 0.05) >= 4.5, what  # the contrast of WCAG 2
    assert tab.value("document.querySelectorAll('main b, main script, img').length") == 0
    assert tab.requests == [page.as_uri()]
    assert tab.messages == []


def test_a_bar_is_as_long_as_its_time(tab: Tab, page: Path) -> None:
    tab.open(page, 1280, False)
    rows: list[list[float]] = tab.value(
        "[...document.querySelectorAll('section:nth-of-type(2) .bars tr')].map(each =>"
        "[Number(each.cells[2].textContent), each.querySelector('.bar').offsetWidth])"
    )
    assert len(rows) == 3 * 3
    longest_us, longest = max(rows)
    assert all(abs(width - longest * us / longest_us) < 2 for us, width in rows)


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
