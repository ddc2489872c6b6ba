"""The CUDA runtime's error codes that can occur here (driver_types.h)."""

from __future__ import annotations

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
    ILLEGAL_STATE = 401
    INVALID_RESOURCE_HANDLE = 400
    LAUNCH_OUT_OF_RESOURCES = 701
    LAUNCH_FAILURE = 719
    COOPERATIVE_LAUNCH_TOO_LARGE = 720
    NOT_SUPPORTED = 801
    INVALID_CLUSTER_SIZE = 912


_TEXTS = {
    0: ("cudaSuccess", "no error"),
    1: ("cudaErrorInvalidValue", "invalid argument"),
    2: ("cudaErrorMemoryAllocation", "out of memory"),
    9: ("cudaErrorInvalidConfiguration", "invalid configuration argument"),
    13: ("cudaErrorInvalidSymbol", "invalid device symbol"),
    98: ("cudaErrorInvalidDeviceFunction", "invalid device function"),
    101: ("cudaErrorInvalidDevice", "invalid device ordinal"),
    400: ("cudaErrorInvalidResourceHandle", "invalid resource handle"),
    401: ("cudaErrorIllegalState", "the operation cannot be performed in the present state"),
    700: ("cudaErrorIllegalAddress", "an illegal memory access was encountered"),
    701: ("cudaErrorLaunchOutOfResources", "too many resources requested for launch"),
    719: ("cudaErrorLaunchFailure", "unspecified launch failure"),
    720: ("cudaErrorCooperativeLaunchTooLarge", "too many blocks in cooperative launch"),
    801: ("cudaErrorNotSupported", "operation not supported"),
    912: ("cudaErrorInvalidClusterSize", "cluster misconfiguration"),
}


def error_name(code: int) -> str:
    """The enumerator's name."""
    return _TEXTS.get(code, (f"cudaError{code}", ""))[0]


def error_text(code: int) -> str:
    """What cudaGetErrorString says."""
    return _TEXTS.get(code, ("", f"error {code}"))[1]
