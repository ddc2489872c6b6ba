"""The process of a submission that runs by itself: ``python -m nvfp4.worker.alone SCRIPT``.

The current folder is the script's.
"""

import os
import runpy
import sys
from pathlib import Path

from nvfp4.records.options import options_of_environment
from nvfp4.sandbox.confinement import confine


def run_inside(script: Path) -> None:
    """Confined to its folder, becomes the script, with a stand-in where there is no GPU."""
    confine()
    import torch  # which starts threads: not before they are confined

    sys.argv = [str(script)]
    sys.path[:0] = [os.getcwd()]  # where task.py is
    if torch.cuda.is_available():
        _run_retargeted(script)
        return
    from nvfp4 import emulation

    emulation.install_stand_in()
    runpy.run_path(str(script), run_name="__main__")


def _run_retargeted(script: Path) -> None:
    """Becomes the script; with code for another GPU as the judge's worker would load it."""
    import torch

    from nvfp4.retarget import extensions
    from nvfp4.worker.architecture_errors import names_an_architecture

    options = options_of_environment()
    retarget, arch = options.retarget, options.arch
    if retarget != "never":
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


if __name__ == "__main__":
    run_inside(Path(sys.argv[-1]).resolve())
