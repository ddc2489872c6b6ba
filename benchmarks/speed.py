"""How long commands take without a GPU, which processes use the cores, and how much memory.

    python -m benchmarks.speed [--runs 3] [FILE ...]

Every command runs in a new home, then again in the same one, which is warm. The files are judged
by `eval`, submission.py by `check` and `eval`. Prints a Markdown table: medians of the seconds,
CPU seconds by the part of nvfp4 that used them, and the peak of memory over all processes
(proportional set sizes, sampled four times a second in a run of its own, which that slows down).
Modules have bytecode, as pip leaves them where it installs them.
"""

import argparse
import compileall
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path

from nvfp4.records.files import kilobytes
from nvfp4.sandbox.isolation import descendants

ROOT = Path(__file__).resolve().parents[1]
LOOK_S = 0.05
MEMORY_LOOK_S = 0.25
PARTS = {
    "nvfp4.executor": "emulation",
    "fork_server workers": "submission",
    "fork_server judges": "judge",
    "nvfp4.referee": "referee",
    "nvfp4": "command",
}
"""By what stands in a command line, the first that does; all others are compilers."""


@dataclass
class Run:
    """What a command took. cpu_s: by part."""

    wall_s: float = 0.0
    cpu_s: dict[str, float] = field(default_factory=dict)
    peak_bytes: int = 0


def look(pid: int, used: dict[int, tuple[str, float]]) -> None:
    """Note part and CPU seconds of all processes so far; one that has ended has no command line."""
    tick_s = 1 / os.sysconf("SC_CLK_TCK")
    for each in [pid, *descendants(pid)]:
        try:
            command = Path(f"/proc/{each}/cmdline").read_bytes().replace(b"\0", b" ").decode()
            times = Path(f"/proc/{each}/stat").read_text().rpartition(")")[2].split()[11:13]
        except OSError:
            continue
        if command:
            part = next((part for words, part in PARTS.items() if words in command), "compilers")
            used[each] = part, sum(map(int, times)) * tick_s


def held_bytes(pid: int) -> int:
    """The memory of all processes, what they share counted once."""
    everyone = [pid, *descendants(pid)]
    return sum(kilobytes(f"/proc/{each}/smaps_rollup").get("Pss", 0) for each in everyone)


def run(arguments: list[str], home: Path, memory: bool = False) -> Run:
    """Run nvfp4 with its caches and its history below this folder, for its times or its memory."""
    homes = {f"XDG_{name}_HOME": str(home / name.lower()) for name in ("CACHE", "DATA")}
    command = [sys.executable, "-m", "nvfp4", *arguments]
    found, used, start_s = Run(), dict[int, tuple[str, float]](), time.monotonic()
    with subprocess.Popen(command, env={**os.environ, **homes}, stdout=subprocess.PIPE) as process:
        while process.poll() is None:
            if memory:
                found.peak_bytes = max(found.peak_bytes, held_bytes(process.pid))
            else:
                look(process.pid, used)
            time.sleep(MEMORY_LOOK_S if memory else LOOK_S)
        found.wall_s = time.monotonic() - start_s
    if process.returncode:
        sys.exit(f"nvfp4 {' '.join(arguments)} ended with {process.returncode}")
    cpu_s = defaultdict[str, float](float)
    for part, seconds in used.values():
        cpu_s[part] += seconds
    found.cpu_s = dict(cpu_s)
    return found


def row(name: str, runs: list[Run], peak_bytes: int) -> str:
    """A line of the table, with medians."""
    parts = sorted({part for each in runs for part in each.cpu_s})
    cpu = {part: statistics.median(each.cpu_s.get(part, 0.0) for each in runs) for part in parts}
    shown = ", ".join(f"{part} {seconds:.1f}" for part, seconds in cpu.items() if seconds >= 0.05)
    wall_s = statistics.median(each.wall_s for each in runs)
    return f"| {name} | {wall_s:.1f} | {sum(cpu.values()):.1f} | {shown} | {peak_bytes / 1e9:.2f} |"


def main() -> None:
    """Print a line for each command, as soon as it is known."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("files", nargs="*", type=Path)
    given = parser.parse_args()
    compileall.compile_dir(ROOT / "nvfp4", quiet=1)
    own = str(ROOT / "submission.py")
    commands = [["--help"], ["check", own], ["eval", own]]
    commands += [["eval", str(path)] for path in given.files]
    print("| command | s | CPU s | by part | peak GB |\n|---|---|---|---|---|", flush=True)
    for arguments in commands:
        first, again = [], []
        for _ in range(given.runs):
            with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as home:
                first.append(run(arguments, Path(home)))
                again.append(run(arguments, Path(home)))
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as home:
            peaks = [run(arguments, Path(home), memory=True).peak_bytes for _ in range(2)]
        name = f"`{' '.join(Path(word).name for word in arguments)}`"
        print(row(f"{name}, first", first, peaks[0]))
        print(row(f"{name}, again", again, peaks[1]), flush=True)


if __name__ == "__main__":
    main()
