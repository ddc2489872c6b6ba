"""The error codes of the CUDA runtime that can occur here (driver_types.h), and the driver's."""

from enum import IntEnum


class Code(IntEnum):
    """cudaError_t."""

    SUCCESS = 0
    INVALID_VALUE = 1
    MEMORY_ALLOCATION = 2
    INVALID_CONFIGURATION = 9
    INVALID_SYMBOL = 13
    INVALID_DEVICE_FUNCTION = 98
    NO_DEVICE = 100
    INVALID_DEVICE = 101
    INVALID_KERNEL_IMAGE = 200
    NO_KERNEL_IMAGE_FOR_DEVICE = 209
    INVALID_PTX = 218
    FILE_NOT_FOUND = 301
    INVALID_RESOURCE_HANDLE = 400
    ILLEGAL_STATE = 401
    NOT_FOUND = 500
    LAUNCH_OUT_OF_RESOURCES = 701
    LAUNCH_FAILURE = 719
    COOPERATIVE_LAUNCH_TOO_LARGE = 720
    NOT_SUPPORTED = 801
    INVALID_CLUSTER_SIZE = 912


_KNOWN = {
    0: ("cudaSuccess", "CUDA_SUCCESS", "no error"),
    1: ("cudaErrorInvalidValue", "CUDA_ERROR_INVALID_VALUE", "invalid argument"),
    2: ("cudaErrorMemoryAllocation", "CUDA_ERROR_OUT_OF_MEMORY", "out of memory"),
    9: ("cudaErrorInvalidConfiguration", "", "invalid configuration argument"),
    13: ("cudaErrorInvalidSymbol", "", "invalid device symbol"),
    98: ("cudaErrorInvalidDeviceFunction", "", "invalid device function"),
    100: ("cudaErrorNoDevice", "CUDA_ERROR_NO_DEVICE", "no CUDA-capable device is detected"),
    101: ("cudaErrorInvalidDevice", "CUDA_ERROR_INVALID_DEVICE", "invalid device ordinal"),
    200: (
        "cudaErrorInvalidKernelImage",
        "CUDA_ERROR_INVALID_IMAGE",
        "device kernel image is invalid",
    ),
    209: (
        "cudaErrorNoKernelImageForDevice",
        "CUDA_ERROR_NO_BINARY_FOR_GPU",
        "no kernel image is available for execution on the device",
    ),
    218: ("cudaErrorInvalidPtx", "CUDA_ERROR_INVALID_PTX", "a PTX JIT compilation failed"),
    301: ("cudaErrorFileNotFound", "CUDA_ERROR_FILE_NOT_FOUND", "file not found"),
    400: ("cudaErrorInvalidResourceHandle", "CUDA_ERROR_INVALID_HANDLE", "invalid resource handle"),
    401: (
        "cudaErrorIllegalState",
        "CUDA_ERROR_ILLEGAL_STATE",
        "the operation cannot be performed in the present state",
    ),
    500: ("cudaErrorSymbolNotFound", "CUDA_ERROR_NOT_FOUND", "named symbol not found"),
    700: (
        "cudaErrorIllegalAddress",
        "CUDA_ERROR_ILLEGAL_ADDRESS",
        "an illegal memory access was encountered",
    ),
    701: (
        "cudaErrorLaunchOutOfResources",
        "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES",
        "too many resources requested for launch",
    ),
    719: ("cudaErrorLaunchFailure", "CUDA_ERROR_LAUNCH_FAILED", "unspecified launch failure"),
    720: (
        "cudaErrorCooperativeLaunchTooLarge",
        "CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE",
        "too many blocks in cooperative launch",
    ),
    801: ("cudaErrorNotSupported", "CUDA_ERROR_NOT_SUPPORTED", "operation not supported"),
    912: (
        "cudaErrorInvalidClusterSize",
        "CUDA_ERROR_INVALID_CLUSTER_SIZE",
        "cluster misconfiguration",
    ),
}
"""Their names in cudaError_t and in CUresult, and what cudaGetErrorString says."""

_IN_THE_DRIVER = {
    Code.INVALID_CONFIGURATION: Code.INVALID_VALUE,
    Code.INVALID_SYMBOL: Code.NOT_FOUND,
    Code.INVALID_DEVICE_FUNCTION: Code.INVALID_RESOURCE_HANDLE,
}


def in_the_driver(code: Code) -> Code:
    """What the driver (CUresult, cuda.h) says for an error of the runtime."""
    return _IN_THE_DRIVER.get(code, code)


def error_name(code: int) -> str:
    """The enumerator's name in cudaError_t."""
    return _KNOWN[code][0] if code in _KNOWN else f"cudaError{code}"


def driver_error_name(code: int) -> str:
    """The enumerator's name in CUresult."""
    return (code in _KNOWN and _KNOWN[code][1]) or f"CUDA_ERROR_{code}"


def error_text(code: int) -> str:
    """What cudaGetErrorString says."""
    return _KNOWN[code][2] if code in _KNOWN else f"error {code}"


class CudaError(Exception):
    """What a function of the CUDA runtime returns. message: more than the code says, for people."""

    def __init__(self, code: Code, message: str = "") -> None:
        super().__init__(message or error_text(code))
        self.code = code
        self.message = message
