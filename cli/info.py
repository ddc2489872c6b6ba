"""What this machine can do: device, versions, measured limits, floors."""

from dataclasses import asdict, dataclass
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from nvfp4.cli.assess import judged
from nvfp4.cli.bot import Bot
from nvfp4.cli.errors import SetupError
from nvfp4.cli.problem import Problem, shape_of
from nvfp4.cli.render import b200_floor, b200_legend, flushed, microseconds, new_table
from nvfp4.cli.verdict import BenchmarkResult, Device, read_benchmark, read_confinement, read_device


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
    """Has the judge measure the device. Raises SetupError."""
    lines = problem.benchmarks
    ended = judged(Bot(problem, b"", device, flush=flush).run_eval("info", lines))
    found = read_device(ended.values)
    if found is None:
        raise SetupError(f"the judge saw no device: {ended.stderr}", "Is torch installed here?")
    benchmarks = [read_benchmark(ended.values, i, line, "") for i, line in enumerate(lines)]
    return Information(found, read_confinement(ended.values), benchmarks)


def show_info(console: Console, information: Information) -> None:
    """Facts, abilities and floors as tables."""
    device = information.device
    facts = Table(show_header=False, box=None)
    rows = {
        "device": device.name,
        "compute capability": device.capability or "none: no CUDA device",
        "driver": device.driver or "none",
        "torch": device.torch or "",
        "CUDA of torch": device.cuda or "none: a CPU build",
        "CUTLASS DSL": device.cutlass_dsl or "not installed",
        "Triton": device.triton or "not installed",
        "nvcc": device.nvcc or "none",
        "streaming read": f"{device.read_gbps:,.0f} GB/s" if device.read_gbps else "-",
        "empty call": f"{microseconds(device.empty_us)} us",
    }
    for mechanism, how in information.confined.items():
        rows[f"confined: {mechanism}"] = how
    for name, value in rows.items():
        facts.add_row(name, value)
    console.print(facts)
    for line in abilities(device):
        console.print(line)
    floors = new_table(f"Floors: no kernel is faster here, in us{flushed(device)}")
    for heading in ("m x k x l", "MB", "floor here", "B200 SOL", "B200 floor"):
        floors.add_column(heading, justify="right")
    for each in information.benchmarks:
        floors.add_row(
            str(shape_of(each.spec)),
            f"{(each.bytes or 0) / 1e6:.1f}",
            microseconds(each.floor_us),
            microseconds(each.sol_us),
            b200_floor(each.b200_floor_us),
        )
    console.print(floors, "")
    console.print(Text(b200_legend, style="dim"))


def abilities(device: Device) -> list[str]:
    """What can be judged here, in sentences."""
    if device.kind != "cuda":
        return [
            "Correctness can be judged here; times need a GPU.",
            "torch: runs on the CPU, as a CUDA device.",
            *_kinds(device),
        ]
    lines = ["Correctness and times can be judged on this GPU, with a cold L2 cache."]
    major = int((device.capability or "0").partition(".")[0])
    if 8 <= major < 10:
        lines.append("Kernels for the B200 run rewritten: it has no FP4 conversion, as sm_100 has.")
    return lines


def _kinds(device: Device) -> list[str]:
    """How kernels are judged without a GPU, or what is missing; a line a way to write them."""
    emulated = f"compiled for {device.emulates} and emulated, bit for bit."
    nvcc = device.nvcc or "none"
    return [
        f"CuTe DSL {device.cutlass_dsl}: {emulated}"
        if device.cutlass_dsl
        else "CuTe DSL cannot be judged here: pip install nvidia-cutlass-dsl",
        nvcc.removeprefix("none: ")
        if nvcc.startswith("none")
        else f"CUDA C++, nvcc {nvcc}: {emulated}",
        f"Triton {device.triton}: {emulated}"
        if device.triton
        else "Triton cannot be judged here: pip install 'nvfp4[triton]'",
    ]
