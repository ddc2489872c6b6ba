"""Runs a submission by itself, as the contest's bot does once, but confined to its folder.

    python -m nvfp4.local.run_alone SCRIPT

The current folder is the script's: it holds task.py and the modules of the judge.
"""

import contextlib
import json
import os
import runpy
import signal
import subprocess
import sys
from pathlib import Path

import isolation
from messages import Load, unpack
from nvfp4.local.options import read_options
from nvfp4.local.variables import default_timeout_s
from nvfp4.local.workers import start_alone

_look_s = 0.2


def run_confined(script: Path) -> int:
    """Runs a script confined to its folder and kills what it leaves behind.

    Returns its exit code, or minus the signal that killed it.
    """
    isolation.die_with_parent()
    isolation.adopt_orphans()
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    try:
        load = read_options(default_timeout_s)["load"]
        process = start_alone("nvfp4.local.run_alone", script, load)
        while True:
            with contextlib.suppress(subprocess.TimeoutExpired):
                return process.wait(_look_s)
            if len(isolation.descendants(os.getpid())) > isolation.processes:
                print(f"it started more than {isolation.processes} processes", file=sys.stderr)
                return 1
    finally:
        isolation.kill_children()


def run_inside(script: Path, load: Load) -> None:
    """Confined to its folder, becomes the script, which is loaded as a worker loads it."""
    from nvfp4.local.confinement import confine

    confine()
    import torch  # which starts threads: not before they are confined

    def run() -> None:
        sys.argv = [str(script)]
        runpy.run_path(str(script), run_name="__main__")

    if torch.cuda.is_available():
        from nvfp4.local.fitting import Fitting

        Fitting(load).natively_first(run, run)
        return
    from nvfp4 import emulation

    emulation.install_stand_in(arch=load.arch, check=load.check, orders=load.orders)
    run()


def main() -> None:
    """Ends as the script did, with its exit code or by its signal."""
    if "--inside" in sys.argv:
        script, load = sys.argv[sys.argv.index("--inside") + 1 :]
        run_inside(Path(script), unpack(json.loads(load), Load))
        return
    code = run_confined(Path(sys.argv[-1]).resolve())
    if code < 0:
        os.kill(os.getpid(), -code)
    sys.exit(code)


if __name__ == "__main__":
    main()
