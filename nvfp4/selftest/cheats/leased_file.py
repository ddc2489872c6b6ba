# family: 34
# caught: call.exception: [\s\S]*Operation not permitted: 'lease'
# strategy: take a lease on a file of the user's, so that whoever opens it for writing waits
# quick: yes

import errno
import fcntl
import os

from gemv import gemv

kept = []


def custom_kernel(data):
    kept.append(os.open(os.__file__, os.O_RDONLY))
    try:
        fcntl.fcntl(kept[-1], fcntl.F_SETLEASE, fcntl.F_RDLCK)
    except OSError as error:
        if error.errno == errno.EPERM:
            error.filename = "lease"
        raise
    return gemv(data)
