"""Numbers on the result pipe, as far as they are some."""

import math


def number(values: dict[str, str], key: str) -> float | None:
    """A finite number that is not negative; None for anything else."""
    try:
        value = float(values[key])
    except (KeyError, ValueError):
        return None
    return value if 0 <= value < math.inf else None


def count(values: dict[str, str], key: str) -> int | None:
    """The same as a whole number."""
    value = number(values, key)
    return None if value is None else int(value)


def microseconds(values: dict[str, str], key: str) -> float | None:
    """The same of a number in nanoseconds."""
    ns = number(values, key)
    return None if ns is None else ns / 1e3


def samples_us(text: str, runs: int | None) -> list[float] | None:
    """As many times as there were runs; None where they are not there, or there was no room."""
    try:
        times_us = [float(each) / 1e3 for each in text.split(",")]
    except ValueError:
        return None
    sensible = len(times_us) == runs and all(0 <= each < math.inf for each in times_us)
    return times_us if sensible else None
