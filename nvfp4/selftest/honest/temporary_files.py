# strategy: keeps files in /tmp, in shared memory, in its cache and below its home folder
# quick: yes

import os
import tempfile

from gemv import gemv

folders = ["/tmp", "/dev/shm", tempfile.gettempdir(), os.environ["XDG_CACHE_HOME"], "."]
folders.append(os.path.expanduser("~/.cache/torch_extensions"))


def custom_kernel(data):
    for folder in folders:
        os.makedirs(folder, exist_ok=True)
        path = os.path.join(folder, "kept")
        with open(path, "a") as file:
            file.write("x")
        assert os.path.getsize(path)
    return gemv(data)
