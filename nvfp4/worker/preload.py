"""What every process of a submission loads: a server that forks them imports it once."""

import nvfp4.emulation
import nvfp4.worker.choose_runner  # noqa: F401
