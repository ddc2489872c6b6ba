"""A flag in device memory that queued work of one process waits for and another process raises."""

import ctypes

import torch

from nvfp4.gpu.device_memory import allocate, open_memory

_flag_bytes = 4
_greater_or_equal = 0  # CU_STREAM_WAIT_VALUE_GEQ of the CUDA driver


class Gate:
    """The side that opens it. ``fd`` is what the other side needs to wait at it."""

    def __init__(self, device: torch.device) -> None:
        self.fd, place = allocate(_flag_bytes, device)
        self._flag = place(0, _flag_bytes).view(torch.int32)
        self.shut()

    def shut(self) -> None:
        """What is queued behind it from now on waits."""
        self._flag.zero_()
        torch.cuda.synchronize(self._flag.device)

    def open(self) -> None:
        """Lets go what waits, as soon as what this stream has to do is done; asynchronous."""
        self._flag.fill_(1)


class WaitingSide:
    """The side that waits."""

    def __init__(self, fd: int, device: torch.device) -> None:
        self._flag = open_memory(fd, _flag_bytes, device)(0, _flag_bytes).view(torch.int32)
        self._wait = ctypes.CDLL("libcuda.so.1").cuStreamWaitValue32_v2

    def wait(self) -> None:
        """What is queued on the current stream from now on waits until the gate is open.

        Raises RuntimeError where the driver cannot do that.
        """
        stream = torch.cuda.current_stream(self._flag.device).cuda_stream
        status = self._wait(
            ctypes.c_void_p(stream),
            ctypes.c_uint64(self._flag.data_ptr()),
            ctypes.c_uint32(1),
            ctypes.c_uint(_greater_or_equal),
        )
        if status != 0:
            raise RuntimeError(f"cuStreamWaitValue32 failed with CUDA error {status}")
