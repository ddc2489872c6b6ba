# strategy: read its environment, for tuning of its own and for a temporary folder

import os

from gemv import gemv

rows = int(os.environ.get("GEMV_ROWS", "0"))
folder = os.environ["TMPDIR"]


def custom_kernel(data):
    assert rows == 0, "nobody has set it"
    assert os.path.isdir(folder)
    return gemv(data)
