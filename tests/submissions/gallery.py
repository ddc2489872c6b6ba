"""Functions that stand for ``custom_kernel``: right ones that do something unusual, and wrong ones.

``tests/test_bot.py`` says what is expected of each.
"""

import contextlib
import ctypes
import os
import signal
import stat
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import torch
from right import gemv


def returns_c(data):
    data[6].copy_(gemv(data))
    return data[6]


def returns_a_fresh_tensor(data):
    return gemv(data)


def returns_a_strided_tensor(data):
    return gemv(data).repeat_interleave(2, dim=0)[::2]


def prints_megabytes(data):
    for number, stream in ((1, sys.stdout), (2, sys.stderr)):
        with contextlib.suppress(OSError, ValueError):  # another one of these closes them
            if stat.S_ISFIFO(os.fstat(number).st_mode):  # else it is another file's number by now
                for _ in range(300):
                    print("check: pass\ntest.0.status: pass " * 300, file=stream, flush=True)
                os.write(number, b"x" * (3 << 20))
    return gemv(data)


def computes_in_threads(data):
    with ThreadPoolExecutor(4) as pool:
        return torch.stack([each.result() for each in [pool.submit(gemv, data)] * 3])[2]


def leaves_a_fork_behind(data):
    if os.fork() == 0:
        time.sleep(300)
        os._exit(0)
    return gemv(data)


def closes_standard_streams(data):
    for stream in (1, 2):
        with contextlib.suppress(OSError):
            os.close(stream)
    return gemv(data)


def computes_wrong_values(data):
    output = gemv(data)
    output[0, 0, 0] += 1
    return output


def skips_high_nibbles(data):
    a, b, *rest = data
    low = [(packed.view(torch.uint8) & 15).view(packed.dtype) for packed in (a, b)]
    return gemv((*low, *rest))


def leaves_c_unwritten(data):
    return data[6]


def returns_nan(data):
    return torch.full_like(data[6], float("nan"))


def returns_inf(data):
    return torch.full_like(data[6], float("inf"))


def returns_a_wrong_shape(data):
    return data[6][:, 0]


def returns_a_wrong_dtype(data):
    return gemv(data).bool()


def returns_a_list(data):
    return gemv(data).tolist()


def returns_none(data):
    data[6].copy_(gemv(data))


class Lazy(torch.Tensor):
    """Would compute when it is compared."""


def returns_a_subclass(data):
    return gemv(data).as_subclass(Lazy)


def returns_a_sparse_tensor(data):
    return gemv(data).to_sparse()


def changes_an_input(data):
    output = gemv(data)
    data[5].view(torch.uint8)[0] ^= 1
    return output


def raises(data):
    return torch.zeros(3) @ torch.zeros(5)


def exits(data):
    sys.exit(0)


def exits_at_once(data):
    print("last words", file=sys.stderr, flush=True)
    os._exit(0)


def crashes(data):
    print("about to read address 0", file=sys.stderr, flush=True)
    ctypes.string_at(0)
    return data[6]


def is_killed_for_memory(data):
    os.kill(os.getpid(), signal.SIGKILL)  # what Linux does when memory runs out
    return data[6]


def allocates_too_much(data):
    return torch.empty(1 << 60, dtype=torch.uint8, device=data[6].device)


def recurses_for_ever(data):
    return recurses_for_ever(data)


def crashes_beside_a_fork(data):
    if os.fork() == 0:
        time.sleep(300)
    os._exit(5)


def starts_many_processes(data):
    for _ in range(5000):
        os.posix_spawn("/bin/sleep", ["sleep", "300"], {})  # cheaper than a fork with torch
    return data[6]


def writes_to_the_judge_s_socket(data):
    for fd in range(3, 64):
        with contextlib.suppress(OSError):
            os.write(fd, b'{"id": 1, "is": "Called", "call_ns": 1.0, "settled_ns": 1.0}\n')
    time.sleep(0.2)
    return data[6]


def loops_for_ever(data):
    while True:
        time.sleep(0.1)
