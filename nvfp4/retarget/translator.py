"""Turns PTX of another architecture into PTX for this machine's GPU and driver."""

from typing import Any

from nvfp4.retarget.driver import Driver, installed_driver
from nvfp4.retarget.rewrite import RewriteReport, rewrite


class Translator:
    """Rewrites PTX texts. reports: a report on each text."""

    def __init__(self, target: str, driver: Driver | None = None) -> None:
        """target: the architecture of the device. Raises DriverError without a driver."""
        self.target = target
        self.reports: list[RewriteReport] = []
        self._driver = driver or installed_driver()

    def kernels(self) -> list[dict[str, Any]]:
        """Return an entry for each kernel rewritten so far; see `RewriteReport.entries`."""
        return [entry for report in self.reports for entry in report.entries()]

    def translate(self, ptx: str) -> str:
        """Rewrite PTX for this device and its driver; adds to `reports`. Raises NotRetargetable."""
        rewritten = rewrite(ptx, self.target, self._driver.newest_ptx())
        self.reports.append(rewritten.report)
        return rewritten.ptx

    def explain(self, ptx: str) -> None:
        """Load translated PTX. Raises DriverError with the driver's message if it is refused."""
        self._driver.load(ptx)
