"""Numbers as people read them."""


def microseconds(value: float | None) -> str:
    """A time with the digits that mean something; a dash for None."""
    if value is None:
        return "-"
    digits = 3 if value < 100 else 1 if value < 1000 else 0
    return f"{value:,.{digits}f}"


def seconds(value: float) -> str:
    """``17.2 s``, or ``3 min 5 s`` from two minutes on."""
    if value < 120:
        return f"{value:.1f} s"
    minutes, rest = divmod(round(value), 60)
    return f"{minutes} min {rest} s"


def percent(part: float | None, whole: float | None) -> str:
    """A share; a dash where one of the two is unknown or nothing."""
    if not part or not whole:
        return "-"
    share = part / whole
    return f"{share:.1%}" if share < 0.9995 else f"{share:.0%}"


def several(count: int, noun: str) -> str:
    """``1 test``, ``3 tests``."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"
