"""Runs a submission by itself, as the contest's bot does once, but confined to its folder.

    python -m nvfp4.local.run_alone SCRIPT

The current folder is the script's: it holds task.py and the modules of the judge.
"""

import contextlib
import os
import runpy
import signal
import subprocess
import sys
from pathlib import Path

import isolation
from nvfp4.local.variables import variables

_look_s = 0.2


def run_confined(script: Path) -> int:
    """Runs a script confined to its folder and kills what it leaves behind.

    Returns its exit code, or minus the signal that killed it.
    """
    isolation.die_with_parent()
    isolation.adopt_orphans()
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    command = [sys.executable, "-m", "nvfp4.local.run_alone", "--inside", str(script)]
    try:
        process = subprocess.Popen(command, env=variables(script, script.parent))
        while True:
            with contextlib.suppress(subprocess.TimeoutExpired):
                return process.wait(_look_s)
            if len(isolation.descendants(os.getpid())) > isolation.processes:
                print(f"it started more than {isolation.processes} processes", file=sys.stderr)
                return 1
    finally:
        isolation.kill_children()


def run_inside(script: Path) -> None:
    """Confined to its folder, becomes the script, with a stand-in where there is no GPU."""
    from nvfp4.local.confinement import confine

    confine()
    import torch  # which starts threads: not before they are confined

    if not torch.cuda.is_available():
        from nvfp4 import emulation

        emulation.install_stand_in()
    sys.argv = [str(script)]
    runpy.run_path(str(script), run_name="__main__")


def main() -> None:
    """Ends as the script did, with its exit code or by its signal."""
    script = Path(sys.argv[-1]).resolve()
    if sys.argv[1] == "--inside":
        run_inside(script)
        return
    code = run_confined(script)
    if code < 0:
        os.kill(os.getpid(), -code)
    sys.exit(code)


if __name__ == "__main__":
    main()
