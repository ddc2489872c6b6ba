"""Captured launches through the driver: right outputs, and what a launch costs the host."""

from __future__ import annotations

import ctypes
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from nvfp4.capture.cutedsl import intercept
from nvfp4.contract.reference import check_implementation, generate_full_range_input
from nvfp4.records.launch import Launch
from nvfp4.retarget import target_of
from nvfp4.retarget.executor import Executor
from nvfp4.tuner.space import load_submission

NAMES = ("packed", "shared_memory", "tma", "cp_async", "split_k")
MOST_ADDED_US = 2.0


def host_us(call: Callable[[], object]) -> float:
    """The least mean of a call's time on the host, in microseconds; the device may lag behind."""
    means = []
    for _ in range(20):
        torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(100):
            call()
        means.append((time.perf_counter() - start) / 100)
    torch.cuda.synchronize()
    return min(means) * 1e6


def main() -> int:
    """Prints a JSON object; 1 if an output is wrong or a launch costs too much."""
    executor = Executor(str(target_of(torch.cuda.get_device_capability())))
    launches: list[Launch] = []
    found: dict[str, Any] = {}

    def run(launch: Launch) -> None:
        launches.append(launch)
        executor.run(launch, torch.cuda.current_stream().cuda_stream)

    data = generate_full_range_input(384, 7168, 2, seed=1111)
    with intercept(run, "sm_100a"):
        for name in NAMES:
            try:
                data[6].fill_(torch.nan)
                output = load_submission(Path("tests", "kernels", f"{name}.py")).custom_kernel(data)
                torch.cuda.synchronize()
                right, message = check_implementation(data, output)
                found[name] = "right" if right else message.splitlines()[0]
            except Exception as error:
                found[name] = f"{type(error).__name__}: {error}"[:1000]
    passed = all(state == "right" for state in found.values())
    costs: dict[str, float] = {}
    if launches:
        launch = launches[0]
        costs["executor_us"] = host_us(lambda: executor.run(launch))
        kernel = executor._kernels[launch.ptx, launch.kernel]
        # What is left without our own work: one call through ctypes, prepared by the last launch.
        launch_ex = kernel._launch_ex
        arguments = (kernel._config_address, kernel._function, kernel._pointers, None)
        costs["driver_alone_us"] = host_us(lambda: launch_ex(*arguments))
        costs["added_us"] = costs["executor_us"] - costs["driver_alone_us"]
        passed = passed and costs["added_us"] < MOST_ADDED_US
    version = ctypes.c_int()
    executor._driver.call("cuDriverGetVersion", ctypes.byref(version))
    print(
        json.dumps(
            {
                "passed": passed,
                "driver": version.value,
                "newest_ptx": executor._driver.newest_ptx(),
                "outputs": found,
                "host": costs,
            }
        )
    )
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main())
