"""Headless Chromium for tests, asked over the DevTools protocol."""

import base64
import json
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

PROGRAM = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)

_START_S, _ANSWER_S = 60.0, 30.0
_QUIET = ("--no-first-run", "--disable-background-networking", "--disable-sync", "--mute-audio")


class Tab:
    """A page that is open. messages: what its console shows. requests: addresses it asked for."""

    def __init__(self, socket: Any, session: str) -> None:
        self._socket, self._session = socket, session
        self._asked = 0
        self.messages: list[str] = []
        self.requests: list[str] = []
        self._loaded = 0
        for domain in ("Page", "Network", "Log", "Runtime"):
            self.ask(f"{domain}.enable")

    def ask(self, method: str, **parameters: Any) -> dict[str, Any]:
        """The result of a command."""
        self._asked += 1
        command = {"id": self._asked, "method": method, "params": parameters}
        self._socket.send(json.dumps({**command, "sessionId": self._session}))
        while True:
            said = self._next()
            if said.get("id") == self._asked:
                assert "error" not in said, said
                result: dict[str, Any] = said["result"]
                return result

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

    def picture(self, **clip: float) -> bytes:
        """A PNG of the page. clip: x, y, width, height and scale."""
        given = {"clip": clip, "captureBeyondViewport": True} if clip else {}
        return base64.b64decode(self.ask("Page.captureScreenshot", **given)["data"])


@contextmanager
def opened(folder: Path) -> Iterator[Tab]:
    """A tab of a browser without a window, which keeps what it needs in a folder."""
    from websockets.sync.client import connect

    assert PROGRAM
    command = [
        PROGRAM,
        "--headless=new",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-dev-shm-usage",
        *_QUIET,
    ]
    command += ["--remote-debugging-port=0", f"--user-data-dir={folder}", "about:blank"]
    process = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        port, address = _port(folder / "DevToolsActivePort", process)
        with connect(f"ws://127.0.0.1:{port}{address}", max_size=None) as socket:
            yield _tab(socket)
    finally:
        process.terminate()
        process.wait(_ANSWER_S)


def _tab(socket: Any) -> Tab:
    def ask(number: int, method: str, **parameters: Any) -> dict[str, Any]:
        socket.send(json.dumps({"id": -number, "method": method, "params": parameters}))
        while True:
            said: dict[str, Any] = json.loads(socket.recv(timeout=_ANSWER_S))
            if said.get("id") == -number:
                result: dict[str, Any] = said["result"]
                return result

    target = ask(1, "Target.createTarget", url="about:blank")["targetId"]
    return Tab(socket, ask(2, "Target.attachToTarget", targetId=target, flatten=True)["sessionId"])


def _port(file: Path, process: subprocess.Popen[bytes]) -> tuple[str, str]:
    deadline = time.monotonic() + _START_S
    while time.monotonic() < deadline and process.poll() is None:
        lines = file.read_text().splitlines() if file.is_file() else []
        if len(lines) == 2:
            return lines[0], lines[1]
        time.sleep(0.05)
    raise TimeoutError("the browser does not start")
