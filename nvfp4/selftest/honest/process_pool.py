# strategy: compiles in processes of its own

import multiprocessing
import subprocess
import sys

from gemv import gemv


def custom_kernel(data):
    lock = multiprocessing.get_context("spawn").Lock()
    with lock:
        said = subprocess.run([sys.executable, "-c", "print(6 * 7)"], capture_output=True)
    assert said.stdout == b"42\n", said.stderr
    return gemv(data)
