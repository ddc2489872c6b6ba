"""The abilities of this machine: device, versions, measured limits, floors."""

import json
import os
import subprocess
import sys
from dataclasses import asdict, dataclass
from typing import Any

from rich.console import Console

from nvfp4.cli.display.benchmark_tables import b200_columns, flushed
from nvfp4.cli.display.console import Column, say, show_table
from nvfp4.cli.errors import SetupError
from nvfp4.cli.judging.assess import judged
from nvfp4.cli.judging.bot import Bot, has_driver
from nvfp4.cli.problem import Problem, load_problem, shape_of
from nvfp4.cli.text import microseconds
from nvfp4.cli.verdict import BenchmarkResult, Device, read_benchmark, read_confinement, read_device
from nvfp4.records.options import Options


@dataclass(frozen=True)
class Information:
    """The device and the benchmarks with their floors on it."""

    device: Device
    confined: dict[str, str]
    benchmarks: list[BenchmarkResult]

    def as_json(self) -> dict[str, Any]:
        """device as ``nvfp4 eval --json`` has it; floors by benchmark."""
        wanted = ("spec", "bytes", "floor_us", "sol_us", "b200_floor_us")
        floors = [{name: getattr(each, name) for name in wanted} for each in self.benchmarks]
        return {"device": asdict(self.device), "confined": self.confined, "floors": floors}


def inspect(problem: Problem, device: str, flush: str = "contest") -> Information:
    """Let the judge measure the device. Raises SetupError."""
    lines = problem.benchmarks
    ended = judged(Bot(problem, b"", Options(device=device, flush=flush)).run_eval("info", lines))
    found = read_device(ended.values)
    if found is None:
        raise SetupError(f"the judge saw no device: {ended.stderr}", "Is torch installed here?")
    benchmarks = [read_benchmark(ended.values, i, line) for i, line in enumerate(lines)]
    return Information(found, read_confinement(ended.values), benchmarks)


def show_info(console: Console, information: Information) -> None:
    """Show the facts about the device, what can be judged on it, and the floors."""
    device = information.device
    rows = {
        "device": device.name,
        "compute capability": device.capability or "none: no CUDA device",
        "driver": device.driver or "none",
        "torch": device.torch or "",
        "CUDA of torch": device.cuda or "none: a CPU build",
        "CUTLASS DSL": device.cutlass_dsl or "not installed: pip install nvidia-cutlass-dsl",
        "Triton": device.triton or "not installed: pip install 'nvfp4[triton]'",
        "nvcc": device.nvcc or "none",
        "streaming read": f"{device.read_gbps:,.0f} GB/s" if device.read_gbps else "-",
        "empty call": f"{microseconds(device.empty_us)} us",
        **{f"confined: {mechanism}": how for mechanism, how in information.confined.items()},
    }
    for name, value in rows.items():
        say(console, f"{name:<{max(map(len, rows)) + 2}}{value}")
    say(console, _ability(device))
    say(console)
    title = f"Floors: no kernel is faster here, in us{flushed(device)}"
    benchmarks = information.benchmarks
    shapes = [shape_of(each.spec) for each in benchmarks]
    columns = [
        Column(shapes[0].names, list(map(str, shapes))),
        Column("MB", [f"{(each.bytes or 0) / 1e6:.1f}" for each in benchmarks], 3),
        Column("floor here", [microseconds(each.floor_us) for each in benchmarks]),
        *b200_columns(benchmarks, ("B200 SOL", 1), ("B200 floor", 2)),
    ]
    show_table(console, title, columns)


def _ability(device: Device) -> str:
    """Return a sentence on what can be judged on this machine."""
    if device.kind != "cuda":
        return (
            "Correctness can be judged here; times need a GPU. torch runs on the CPU, as a CUDA "
            f"device; kernels are compiled for {device.emulates} and emulated, bit for bit."
        )
    judged = "Correctness and times can be judged on this GPU, with a cold L2 cache."
    if 8 <= float(device.capability or 0) < 10:
        judged += " Kernels for the B200 run rewritten: it has no FP4 conversion, as sm_100 has."
    return judged


def capability_of(device: str) -> str | None:
    """Return the compute capability of the GPU on which submissions are judged, such as 9.0, None
    where they are judged without one. device: auto, cpu, emulate, cuda or cuda:N.

    Asks the judge, which loads torch, only where there is a driver. Raises SetupError.
    """
    if device in ("cpu", "emulate") or (device == "auto" and not has_driver()):
        return None
    return inspect(load_problem(), device).device.capability


_COUNT = """
import json, torch
count = torch.cuda.device_count()
print(json.dumps(["%d.%d" % torch.cuda.get_device_capability(each) for each in range(count)]))
"""


def visible_gpus() -> dict[str, str]:
    """Return the GPUs that torch sees, each as CUDA_VISIBLE_DEVICES names it, with its compute
    capability. Raises SetupError.
    """
    if not has_driver():
        return {}
    done = subprocess.run([sys.executable, "-c", _COUNT], cwd="/", capture_output=True, text=True)
    if done.returncode != 0:
        reason = done.stderr.strip().splitlines()[-1:] or ["no reason is known"]
        raise SetupError(f"torch cannot count the GPUs: {reason[0]}", "Is torch installed here?")
    chosen = os.environ.get("CUDA_VISIBLE_DEVICES")
    capabilities = json.loads(done.stdout)
    names = map(str, range(len(capabilities))) if chosen is None else chosen.split(",")
    return dict(zip(names, capabilities, strict=False))
