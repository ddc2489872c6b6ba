# family: 10
# caught: timing.clocks_disagree|timing.below_floor
# needs: cuda
# strategy: overwrite cudaEventElapsedTime in memory so that it reports 0.03 ms

import ctypes
import mmap
import struct

import torch

from gemv import gemv


def patch():
    runtime = next(line.split()[-1] for line in open("/proc/self/maps") if "libcudart" in line)
    function = ctypes.CDLL(runtime).cudaEventElapsedTime
    address = ctypes.cast(function, ctypes.c_void_p).value
    page = address & ~(mmap.PAGESIZE - 1)
    ctypes.CDLL(None).mprotect(ctypes.c_void_p(page), 2 * mmap.PAGESIZE, 7)
    # mov dword [rdi], 0.03f; xor eax, eax; ret
    code = b"\xc7\x07" + struct.pack("<f", 0.03) + b"\x31\xc0\xc3"
    ctypes.memmove(address, code, len(code))


patched = False


def custom_kernel(data):
    global patched
    if not patched:
        torch.cuda.synchronize()
        patch()
        patched = True
    return gemv(data)
