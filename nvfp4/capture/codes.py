"""The error codes of the CUDA runtime that can occur here (driver_types.h)."""

from enum import IntEnum


class Code(IntEnum):
    """cudaError_t."""

    SUCCESS = 0
    INVALID_VALUE = 1
    MEMORY_ALLOCATION = 2
    INVALID_CONFIGURATION = 9
    INVALID_SYMBOL = 13
    INVALID_DEVICE_FUNCTION = 98
    INVALID_DEVICE = 101
    NO_KERNEL_IMAGE_FOR_DEVICE = 209
    INVALID_RESOURCE_HANDLE = 400
    ILLEGAL_STATE = 401
    LAUNCH_OUT_OF_RESOURCES = 701
    LAUNCH_FAILURE = 719
    COOPERATIVE_LAUNCH_TOO_LARGE = 720
    NOT_SUPPORTED = 801
    INVALID_CLUSTER_SIZE = 912


_KNOWN = {
    0: ("cudaSuccess", "no error"),
    1: ("cudaErrorInvalidValue", "invalid argument"),
    2: ("cudaErrorMemoryAllocation", "out of memory"),
    9: ("cudaErrorInvalidConfiguration", "invalid configuration argument"),
    13: ("cudaErrorInvalidSymbol", "invalid device symbol"),
    98: ("cudaErrorInvalidDeviceFunction", "invalid device function"),
    101: ("cudaErrorInvalidDevice", "invalid device ordinal"),
    209: (
        "cudaErrorNoKernelImageForDevice",
        "no kernel image is available for execution on the device",
    ),
    400: ("cudaErrorInvalidResourceHandle", "invalid resource handle"),
    401: ("cudaErrorIllegalState", "the operation cannot be performed in the present state"),
    700: ("cudaErrorIllegalAddress", "an illegal memory access was encountered"),
    701: ("cudaErrorLaunchOutOfResources", "too many resources requested for launch"),
    719: ("cudaErrorLaunchFailure", "unspecified launch failure"),
    720: ("cudaErrorCooperativeLaunchTooLarge", "too many blocks in cooperative launch"),
    801: ("cudaErrorNotSupported", "operation not supported"),
    912: ("cudaErrorInvalidClusterSize", "cluster misconfiguration"),
}
"""Their names in cudaError_t, and what cudaGetErrorString says."""


def error_name(code: int) -> str:
    """Return the enumerator's name in cudaError_t."""
    return _KNOWN[code][0] if code in _KNOWN else f"cudaError{code}"


def error_text(code: int) -> str:
    """Return what cudaGetErrorString says."""
    return _KNOWN[code][1] if code in _KNOWN else f"error {code}"


class CudaError(Exception):
    """The error that a function of the CUDA runtime returns. message: more than its text says."""

    def __init__(self, code: Code, message: str = "") -> None:
        super().__init__(message or error_text(code))
        self.code = code
        self.message = message
