"""An H200: an H100's multiprocessors with faster memory."""

from dataclasses import replace

from nvfp4.model.gpu import Curve
from nvfp4.model.h100 import H100

_FASTER = 4.8 / 3.35
"""TB/s of both datasheets."""


def _scaled(curve: Curve) -> Curve:
    """The curve of faster memory: as much later as it is saturated by more bytes in flight."""
    return tuple((round(nbytes * _FASTER), gbps * _FASTER) for nbytes, gbps in curve)


H200 = replace(
    H100,
    name="H200",
    clean=_scaled(H100.clean),
    dirty=_scaled(H100.dirty),
    low=0.95,  # scripts.model_error, 276 cases of 46 kernels
    high=1.15,
)
