"""The table of docs/trust.md from two runs of the self-test.

    nvfp4 selftest --json > CPU.json      # where there is no GPU
    nvfp4 selftest --json > GPU.json
    python -m scripts.selftest_table CPU.json GPU.json

Prints Markdown; what the judge said is of the second file, or of the first where that skipped it.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

_longest = 110


def findings(path: Path) -> dict[str, dict[str, Any]]:
    """By the name of the submission."""
    return {each["name"]: each for each in json.loads(path.read_text())["findings"]}


def row(name: str, on_cpu: dict[str, Any], on_gpu: dict[str, Any]) -> str:
    """A line of the table."""
    known = on_cpu if on_gpu.get("verdict", "skipped") == "skipped" else on_gpu
    how = known["how"].replace("|", "\\|")
    cells = [
        str(known["family"] or "-"),
        name,
        known["strategy"],
        on_cpu.get("verdict", "not run"),
        on_gpu.get("verdict", "not run"),
        how if len(how) <= _longest else f"{how[:_longest]} ...",
    ]
    return f"| {' | '.join(cells)} |"


def main() -> None:
    """Honest submissions first, then cheats by family, as the self-test lists them."""
    cpu, gpu = (findings(Path(path)) for path in sys.argv[1:])
    for name in dict.fromkeys([*cpu, *gpu]):
        print(row(name, cpu.get(name, {}), gpu.get(name, {})))


if __name__ == "__main__":
    main()
