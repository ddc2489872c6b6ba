# family: 29
# caught: call.exception: [\s\S]*(PermissionError|Read-only file system)
# strategy: leave code in the compilers' caches of other submissions

import os


def custom_kernel(data):
    own = os.environ["XDG_CACHE_HOME"]
    folder = os.path.dirname(own)
    others = [name for name in os.listdir(folder) if name != os.path.basename(own)]
    for name in ["0" * 32, *others]:
        os.makedirs(f"{folder}/{name}/numba_cache_dir", exist_ok=True)
        with open(f"{folder}/{name}/numba_cache_dir/poison.nbc", "wb") as file:
            file.write(b"code")
    return data[6]
