"""The process of a submission that runs by itself: ``python -m nvfp4.worker.alone SCRIPT``.

The current folder is the script's.
"""

import runpy
import sys
from pathlib import Path

from nvfp4.records.options import options_of_environment
from nvfp4.records.refusals import is_refusal
from nvfp4.sandbox.confinement import confine
from nvfp4.worker.imports import import_packages_only


def run_inside(script: Path) -> None:
    """Confine this process to its folder, and run the script in it, loaded as in a worker."""
    confine()
    import torch  # which starts threads: not before they are confined

    options = options_of_environment()
    import_packages_only()

    def run() -> None:
        sys.argv = [str(script)]
        runpy.run_path(str(script), run_name="__main__")

    if torch.cuda.is_available():
        from nvfp4.worker.fitting import Fitting

        Fitting(options).natively_first(run, run)
        return
    from nvfp4.worker.emulated_runner import ForwardedLaunches, NoLink

    ForwardedLaunches(NoLink(), script, options)
    try:
        run()
    except Exception as error:
        if not is_refusal(error):
            raise
        print(f"it ends where a GPU would go on: {error}", file=sys.stderr)


if __name__ == "__main__":
    run_inside(Path(sys.argv[-1]).resolve())
