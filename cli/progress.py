"""Progress while a judgement runs: a live line on a terminal, plain lines elsewhere."""

from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn
from rich.text import Text

from nvfp4.cli.assess import Observer
from nvfp4.cli.render import benchmark_line, device_line, test_line
from nvfp4.cli.verdict import Device

_titles = {
    "import": "running submission.py by itself",
    "tests": "tests",
    "benchmarks": "benchmarks",
    "profile": "profile",
}


@contextmanager
def observed(console: Console) -> Iterator[Observer]:
    """An observer that shows the course on the console."""
    announced: set[str] = set()

    def on_device(device: Device) -> None:
        if device.name not in announced:
            announced.add(device.name)
            console.print(device_line(device))

    if not console.is_terminal:
        yield Observer(
            device=on_device,
            test=lambda result: console.print(test_line(result)),
            benchmark=lambda result: console.print(benchmark_line(result)),
        )
        return
    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(bar_width=24),
        MofNCompleteColumn(),
        TextColumn("{task.fields[last]}"),
    )
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task("", total=1, last="")

        def on_phase(title: str, cases: int) -> None:
            progress.reset(task, description=_titles[title], total=cases, last="")

        def on_result(line: Text) -> None:
            progress.update(task, advance=1, last=line.plain)

        yield Observer(
            phase=on_phase,
            device=on_device,
            test=lambda result: on_result(test_line(result)),
            benchmark=lambda result: on_result(benchmark_line(result)),
        )


@contextmanager
def quiet(console: Console) -> Iterator[Observer]:
    """An observer that shows only that something runs, and on a terminal alone."""
    if not console.is_terminal:
        yield Observer()
        return
    with console.status("checking"):
        yield Observer()
