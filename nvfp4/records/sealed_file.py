"""Anonymous files that another process maps and cannot make smaller (Linux)."""

import fcntl
import os
from typing import BinaryIO


def sealed_file(nbytes: int) -> BinaryIO:
    """A file whose size stays."""
    file = os.fdopen(os.memfd_create("nvfp4", os.MFD_ALLOW_SEALING), "r+b", 0)
    file.truncate(nbytes)
    seals = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL
    fcntl.fcntl(file.fileno(), fcntl.F_ADD_SEALS, seals)
    return file
