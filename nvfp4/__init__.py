"""The local judge for the GPU MODE NVFP4 GEMV contest.

In a checkout the folders beside this one (cli, harness, capture, emulator, tuner) are its
packages; an installed wheel has them inside. Either way nvfp4.cli is the same module.
"""

from pathlib import Path

__version__ = "0.1.0"

_beside = Path(__file__).resolve().parent.parent
if (_beside / "task.yml").is_file():
    __path__.append(str(_beside))
