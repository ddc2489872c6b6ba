# strategy: compiles for each shape in a process of its own

import multiprocessing
import subprocess
import sys

from gemv import gemv

compiled = set()


def custom_kernel(data):
    shape = data[0].shape
    if shape not in compiled:
        lock = multiprocessing.get_context("spawn").Lock()
        with lock:
            said = subprocess.run([sys.executable, "-c", "print(6 * 7)"], capture_output=True)
        assert said.stdout == b"42\n", said.stderr
        compiled.add(shape)
    return gemv(data)
