"""The error codes of the CUDA runtime that can occur here (driver_types.h)."""

from enum import IntEnum


class Code(IntEnum):
    """cudaError_t; the names are those of its enumerators, in another spelling."""

    text: str
    """The text that cudaGetErrorString returns."""

    SUCCESS = 0, "no error"
    INVALID_VALUE = 1, "invalid argument"
    MEMORY_ALLOCATION = 2, "out of memory"
    INVALID_CONFIGURATION = 9, "invalid configuration argument"
    INVALID_SYMBOL = 13, "invalid device symbol"
    INVALID_DEVICE_FUNCTION = 98, "invalid device function"
    INVALID_DEVICE = 101, "invalid device ordinal"
    NO_KERNEL_IMAGE_FOR_DEVICE = 209, "no kernel image is available for execution on the device"
    INVALID_RESOURCE_HANDLE = 400, "invalid resource handle"
    ILLEGAL_ADDRESS = 700, "an illegal memory access was encountered"
    LAUNCH_OUT_OF_RESOURCES = 701, "too many resources requested for launch"
    LAUNCH_FAILURE = 719, "unspecified launch failure"
    COOPERATIVE_LAUNCH_TOO_LARGE = 720, "too many blocks in cooperative launch"
    NOT_SUPPORTED = 801, "operation not supported"
    INVALID_CLUSTER_SIZE = 912, "cluster misconfiguration"

    def __new__(cls, value: int, text: str) -> "Code":
        code = int.__new__(cls, value)
        code._value_, code.text = value, text
        return code


_codes = {int(each): each for each in Code}


def error_name(code: int) -> str:
    """Return the enumerator's name in cudaError_t."""
    if code == Code.SUCCESS:
        return "cudaSuccess"
    return f"cudaError{_codes[code].name.title().replace('_', '') if code in _codes else code}"


def error_text(code: int) -> str:
    """Return the text of a code."""
    return _codes[code].text if code in _codes else f"error {code}"


class CudaError(Exception):
    """The error that a function of the CUDA runtime returns.

    message: says more than the text of its code.
    """

    def __init__(self, code: Code, message: str = "") -> None:
        super().__init__(message or error_text(code))
        self.code = code
        self.message = message
