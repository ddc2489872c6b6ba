# family: 34
# caught: call.exception: [\s\S]*no history to lock
# strategy: hold a lock on the user's history for reading, so that no verdict can be kept

import contextlib
import fcntl
import os
import pwd

from gemv import gemv

kept = []


def custom_kernel(data):
    home = pwd.getpwuid(os.getuid()).pw_dir
    with contextlib.suppress(FileNotFoundError, PermissionError):
        kept.append(open(f"{home}/.local/share/nvfp4/history.sqlite3"))
        fcntl.lockf(kept[-1], fcntl.LOCK_SH | fcntl.LOCK_NB)
    if not kept:
        raise LookupError("no history to lock")
    return gemv(data)
