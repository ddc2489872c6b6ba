"""All that confines a submission's process."""

import os
from pathlib import Path

from nvfp4.sandbox import isolation, namespaces
from nvfp4.sandbox.landlock import confine_files


def confine() -> dict[str, str]:
    """Confines this process to its current folder and to the folder of XDG_CACHE_HOME.

    Goes on in a child; see ``namespaces.enter``. Returns what is in force: mechanism to
    description; "none: ..." says why there is none.
    """
    caches = os.environ.get("XDG_CACHE_HOME")
    writable = [Path.cwd(), *([Path(caches)] if caches else [])]
    how = namespaces.enter(writable)
    isolation.die_with_parent()
    protections = {"resources": isolation.limit_resources(), "namespaces": how}
    if " mount" in how:
        writable += [Path("/tmp"), Path("/dev/shm")]  # its own
    try:
        protections["files"] = confine_files(writable)
    except OSError as error:
        protections["files"] = f"none: {error}"
    return protections
