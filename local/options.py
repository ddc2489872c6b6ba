"""What the command sets for eval.py, in variables of the environment.

NVFP4_DEVICE: auto, cuda or cpu. NVFP4_TIMEOUT_S: of a mode. NVFP4_FLUSH: contest or clean, what
empties the L2 cache before a timed call. NVFP4_ARCH, NVFP4_CHECK=0, NVFP4_ORDERS, NVFP4_KEEP and
NVFP4_STRICT=1: of emulated kernels. NVFP4_RETARGET: auto, always or never, whether kernels for
NVFP4_ARCH are rewritten for this GPU. NVFP4_REPEAT=0: no test runs again in a fresh process.
NVFP4_NAME: what messages call the submission's file.
"""

import math
import os
from typing import Any

from messages import Load

flushes = ("contest", "clean")


def called_by_the_command() -> bool:
    """Whether somebody reads the results who knows of more than times."""
    return "NVFP4_DEVICE" in os.environ


def read_options(default_timeout_s: float) -> dict[str, Any]:
    """`device`, `timeout_s`, `load` and `strict`. Raises ValueError with a sentence."""
    get = os.environ.get
    try:
        timeout_s = float(get("NVFP4_TIMEOUT_S", default_timeout_s))
        orders = int(get("NVFP4_ORDERS", 4))
        if orders < 1 or not 0 < timeout_s < math.inf:
            raise ValueError
    except ValueError:
        raise ValueError(
            "NVFP4_ORDERS must be a positive whole number, "
            "NVFP4_TIMEOUT_S a positive number of seconds"
        ) from None
    device, flush = get("NVFP4_DEVICE", "auto"), get("NVFP4_FLUSH", "contest")
    if device not in ("auto", "cuda", "cpu"):
        raise ValueError(f"NVFP4_DEVICE={device!r} is not auto, cuda or cpu")
    if flush not in flushes:
        raise ValueError(f"NVFP4_FLUSH={flush!r} is not contest or clean")
    check, keep = get("NVFP4_CHECK", "1") != "0", "NVFP4_KEEP" in os.environ
    load = Load(
        get("NVFP4_ARCH", "sm_100a"), check, orders, keep, get("NVFP4_RETARGET", "auto"), flush
    )
    strict = get("NVFP4_STRICT", "0") != "0"
    return {"device": device, "timeout_s": timeout_s, "load": load, "strict": strict}
