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
        process = start_alone("nvfp4.local.run_alone", script)
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

    sys.argv = [str(script)]
    if torch.cuda.is_available():
        _run_retargeted(script)
        return
    from nvfp4 import emulation

    emulation.install_stand_in()
    runpy.run_path(str(script), run_name="__main__")


def _run_retargeted(script: Path) -> None:
    """Becomes the script; with code for another GPU as the judge's worker would load it."""
    import torch

    from nvfp4 import extensions
    from nvfp4.local.architecture_errors import names_an_architecture

    retarget, arch = (os.environ.get(f"NVFP4_{name}", "") for name in ("RETARGET", "ARCH"))
    if retarget in ("auto", "always"):
        extensions.start(retarget, arch, torch.cuda.get_device_capability())
    if retarget != "always":
        try:
            runpy.run_path(str(script), run_name="__main__")
            return
        except Exception as error:
            if retarget != "auto" or not names_an_architecture(error):
                raise
    from nvfp4.retargeting import install

    install(arch)
    runpy.run_path(str(script), run_name="__main__")


def main() -> None:
    """Ends as the script did, with its exit code or by its signal."""
    script = Path(sys.argv[-1]).resolve()
    if "--inside" in sys.argv:
        run_inside(script)
        return
    code = run_confined(script)
    if code < 0:
        os.kill(os.getpid(), -code)
    sys.exit(code)


if __name__ == "__main__":
    main()
