"""Every instruction that is not arithmetic; importing this package fills the table."""

import pkgutil
from importlib import import_module

for _module in pkgutil.walk_packages(__path__, f"{__name__}."):
    import_module(_module.name)
