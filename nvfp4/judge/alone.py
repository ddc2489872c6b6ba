"""Runs a submission by itself, as the contest's bot does once, but confined to its folder."""

import contextlib
import os
import subprocess
import sys
from pathlib import Path

from nvfp4.records.options import Options
from nvfp4.sandbox import isolation
from nvfp4.sandbox.workers import Process, start_alone

_look_s = 0.2


def run_confined(script: Path, options: Options, builds_for: str = "") -> int:
    """Runs a script confined to its folder and kills what it leaves behind. builds_for: where it
    is only to build its extensions, the GPU's compute capability.

    Ends as the script did, with its exit code or by its signal.
    """
    isolation.die_with_parent()
    code = _ended(start_alone(script, options, builds_for))
    if code < 0:
        isolation.kill_children()
        os.kill(os.getpid(), -code)
    return code


def _ended(process: Process) -> int:
    """The exit code, or minus the signal that killed it."""
    while True:
        with contextlib.suppress(subprocess.TimeoutExpired):
            return process.wait(_look_s)
        if len(isolation.descendants(os.getpid())) > isolation.processes:
            print(f"it started more than {isolation.processes} processes", file=sys.stderr)
            return 1
