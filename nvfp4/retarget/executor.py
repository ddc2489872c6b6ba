"""Runs captured launches on a GPU, beside the emulator, which runs them on the CPU."""

from __future__ import annotations

from typing import Any

from nvfp4.capture.signature import parameter_bytes
from nvfp4.records.launch import Launch
from nvfp4.retarget.driver import Driver, Kernel, Module, installed_driver
from nvfp4.retarget.errors import DriverError
from nvfp4.retarget.rewrite import RewriteReport, rewrite


class Executor:
    """Rewrites, loads and launches. PTX is loaded once a text, a kernel prepared once.

    reports: what was rewritten, a report a text, in the order of their first launches.
    """

    def __init__(self, target: str, driver: Driver | None = None) -> None:
        """target: the architecture of the device. Raises DriverError without a driver."""
        self.target = target
        self.reports: list[RewriteReport] = []
        self._driver = driver or installed_driver()
        self._modules: dict[str, Module] = {}
        self._kernels: dict[tuple[str, str], Kernel] = {}

    def kernels(self) -> list[dict[str, Any]]:
        """What was rewritten so far; see `report.RewriteReport.entries`."""
        return [entry for report in self.reports for entry in report.entries()]

    def translate(self, ptx: str) -> str:
        """PTX for this device and its driver; noted in `reports`. Raises NotRetargetable."""
        rewritten = rewrite(ptx, self.target, self._driver.newest_ptx())
        self.reports.append(rewritten.report)
        return rewritten.ptx

    def module(self, ptx: str) -> Module:
        """The loaded module of a text."""
        if ptx not in self._modules:
            self._modules[ptx] = self._driver.load(self.translate(ptx))
        return self._modules[ptx]

    def explain(self, ptx: str) -> None:
        """Raises DriverError with the driver's words for translated PTX that it does not take."""
        self._driver.load(ptx)

    def run(self, launch: Launch, stream: int = 0) -> None:
        """Queues one launch on a stream (a CUstream, 0 for the default one).

        Pointers among the parameters are addresses that the device can read. Raises
        NotRetargetable or DriverError.
        """
        key = launch.ptx, launch.kernel
        kernel = self._kernels.get(key)
        if kernel is None:
            kernel = self._kernels[key] = self._prepared(launch)
        kernel.launch(
            launch.grid,
            launch.block,
            launch.cluster,
            launch.shared_bytes,
            launch.parameters,
            stream,
        )

    def _prepared(self, launch: Launch) -> Kernel:
        sizes = parameter_bytes(launch.ptx, launch.kernel)
        if sizes is None:
            raise DriverError(f"the module has no kernel {launch.kernel}")
        given = tuple(len(raw) for raw in launch.parameters)
        if given != sizes:
            raise DriverError(f"{launch.kernel} takes parameters of {sizes} bytes, not {given}")
        return self.module(launch.ptx).kernel(launch.kernel, sizes)
