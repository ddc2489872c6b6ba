"""The base of records."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from typing_extensions import dataclass_transform
else:

    def dataclass_transform(**options: Any) -> Any:
        """Do nothing; type checkers take a class so decorated for a dataclass."""
        return lambda kind: kind


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
class Record:
    """Makes each class derived from it a dataclass; eq, frozen: see ``dataclass``."""

    def __init_subclass__(cls, eq: bool = True, frozen: bool = True) -> None:
        dataclass(frozen=frozen, eq=eq)(cls)
