"""Turns PTX of another architecture into PTX for this machine's GPU and driver."""

from typing import Any

from nvfp4.retarget.driver import Driver, installed_driver
from nvfp4.retarget.rewrite import Rewritten, rewrite


class Translator:
    """Rewrites PTX texts."""

    def __init__(self, target: str, driver: Driver | None = None) -> None:
        """target: the architecture of the device. Raises DriverError without a driver."""
        self.target = target
        self._rewritten: list[Rewritten] = []
        self._driver = driver or installed_driver()

    def kernels(self) -> list[dict[str, Any]]:
        """Return an entry for each kernel rewritten so far; see `Rewritten.entries`."""
        return [entry for each in self._rewritten for entry in each.entries()]

    def translate(self, ptx: str) -> str:
        """Rewrite PTX for this device and its driver. Raises NotRetargetable."""
        self._rewritten.append(rewrite(ptx, self.target, self._driver.newest_ptx()))
        return self._rewritten[-1].ptx

    def explain(self, ptx: str) -> None:
        """Load translated PTX. Raises DriverError with the driver's message if it is refused."""
        self._driver.load(ptx)
