"""The error codes of the CUDA runtime that can occur here (driver_types.h)."""

from enum import IntEnum


class Code(IntEnum):
    """cudaError_t; the names are those of its enumerators, in another spelling."""

    SUCCESS = 0
    INVALID_VALUE = 1
    MEMORY_ALLOCATION = 2
    INVALID_CONFIGURATION = 9
    INVALID_SYMBOL = 13
    INVALID_DEVICE_FUNCTION = 98
    INVALID_DEVICE = 101
    NO_KERNEL_IMAGE_FOR_DEVICE = 209
    INVALID_RESOURCE_HANDLE = 400
    ILLEGAL_ADDRESS = 700
    LAUNCH_OUT_OF_RESOURCES = 701
    LAUNCH_FAILURE = 719
    COOPERATIVE_LAUNCH_TOO_LARGE = 720
    NOT_SUPPORTED = 801
    INVALID_CLUSTER_SIZE = 912


_TEXTS: dict[int, str] = {
    Code.SUCCESS: "no error",
    Code.INVALID_VALUE: "invalid argument",
    Code.MEMORY_ALLOCATION: "out of memory",
    Code.INVALID_CONFIGURATION: "invalid configuration argument",
    Code.INVALID_SYMBOL: "invalid device symbol",
    Code.INVALID_DEVICE_FUNCTION: "invalid device function",
    Code.INVALID_DEVICE: "invalid device ordinal",
    Code.NO_KERNEL_IMAGE_FOR_DEVICE: "no kernel image is available for execution on the device",
    Code.INVALID_RESOURCE_HANDLE: "invalid resource handle",
    Code.ILLEGAL_ADDRESS: "an illegal memory access was encountered",
    Code.LAUNCH_OUT_OF_RESOURCES: "too many resources requested for launch",
    Code.LAUNCH_FAILURE: "unspecified launch failure",
    Code.COOPERATIVE_LAUNCH_TOO_LARGE: "too many blocks in cooperative launch",
    Code.NOT_SUPPORTED: "operation not supported",
    Code.INVALID_CLUSTER_SIZE: "cluster misconfiguration",
}


def error_name(code: int) -> str:
    """Return the enumerator's name in cudaError_t."""
    if code == Code.SUCCESS:
        return "cudaSuccess"
    return f"cudaError{Code(code).name.title().replace('_', '') if code in _TEXTS else code}"


def error_text(code: int) -> str:
    """Return the text that cudaGetErrorString returns for a code."""
    return _TEXTS.get(code, f"error {code}")


class CudaError(Exception):
    """The error that a function of the CUDA runtime returns.

    message: says more than the text of its code.
    """

    def __init__(self, code: Code, message: str = "") -> None:
        super().__init__(message or error_text(code))
        self.code = code
        self.message = message
