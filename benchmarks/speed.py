"""How long commands take without a GPU, which processes use the cores, and how much memory.

    python -m benchmarks.speed [--runs 3] [FILE ...]

Every command runs in a new home, then again in the same one, which is warm. The files are judged
by `eval`, submission.py by `check` and `eval`. Prints a Markdown table: medians of the seconds;
then, of a run of its own, since to look at processes takes up to a fifth of a core, CPU seconds by
the part of nvfp4 that used them, and the peak of memory over all processes (proportional set
sizes, four times a second). Modules have bytecode, as pip leaves them where it installs them.
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
LOOKS_FOR_MEMORY = 5
"""Every fifth look is at the memory, too."""
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
    cpu_s: dict[str, float] = field(default_factory=lambda: defaultdict(float))
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


def run(arguments: list[str], home: Path, watched: bool = False) -> Run:
    """Run nvfp4 with its caches and its history below this folder, for its time or what it uses."""
    homes = {f"XDG_{name}_HOME": str(home / name.lower()) for name in ("CACHE", "DATA")}
    command = [sys.executable, "-m", "nvfp4", *arguments]
    found, used, start_s = Run(), dict[int, tuple[str, float]](), time.monotonic()
    with subprocess.Popen(command, env={**os.environ, **homes}, stdout=subprocess.PIPE) as process:
        looks = 0
        while watched and process.poll() is None:
            look(process.pid, used)
            if looks % LOOKS_FOR_MEMORY == 0:
                found.peak_bytes = max(found.peak_bytes, held_bytes(process.pid))
            looks += 1
            time.sleep(LOOK_S)
        process.communicate()
        found.wall_s = time.monotonic() - start_s
    if process.returncode:
        sys.exit(f"nvfp4 {' '.join(arguments)} ended with {process.returncode}")
    for part, seconds in used.values():
        found.cpu_s[part] += seconds
    return found


def row(name: str, runs: list[Run], watched: Run) -> str:
    """A line of the table."""
    parts = sorted(watched.cpu_s.items())
    shown = ", ".join(f"{part} {seconds:.1f}" for part, seconds in parts if seconds >= 0.05)
    wall_s = statistics.median(each.wall_s for each in runs)
    cpu_s, peak_gb = sum(watched.cpu_s.values()), watched.peak_bytes / 1e9
    return f"| {name} | {wall_s:.1f} | {cpu_s:.1f} | {shown} | {peak_gb:.2f} |"


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
            watched = [run(arguments, Path(home), watched=True) for _ in range(2)]
        name = f"`{' '.join(Path(word).name for word in arguments)}`"
        print(row(f"{name}, first", first, watched[0]))
        print(row(f"{name}, again", again, watched[1]), flush=True)


if __name__ == "__main__":
    main()
