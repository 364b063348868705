"""Kubernetes quantities as exact integers.

A quantity is read into *nanos* (10^-9 of its unit), the finest step Kubernetes knows, so that sums of sub-milli amounts
round once, at the end, as the scheduler's own `MilliValue` and `Value` do.

Source: k8s.io/apimachinery/pkg/api/resource; spec/scheduler-core.md, arithmetic vocabulary.
"""

import re
from collections.abc import Mapping
from functools import lru_cache

from shared.errors import KoordError

NANO = 10**9
"""Nanos in one unit."""

_PATTERN = re.compile(r"([+-]?)(\d+\.?\d*|\.\d+)(?:([eE][+-]?\d+)|(n|u|m|k|M|G|T|P|E|Ki|Mi|Gi|Ti|Pi|Ei)?)")
_DECIMAL = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_BINARY = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
_LARGEST = (2**63 - 1) * NANO
_DIGITS = 60
"""More digits than the largest amount has in nanos. Longer texts are read up to this many, since clients may write any."""


class BadQuantity(KoordError):
    """A text that is not a Kubernetes quantity."""

    def __init__(self, text: object) -> None:
        super().__init__(f"{text!r} is not a quantity; give a number with an optional suffix, such as 500m, 2 or 4Gi")


@lru_cache(maxsize=65_536)
def nanos(text: str) -> int:
    """Parses a quantity: `"500m"` -> 500_000_000.

    Fractions of a nano round away from zero; an amount beyond int64 is limited to it, as in the API server.

    Raises:
        BadQuantity: the text is no quantity.
    """
    match = _PATTERN.fullmatch(text)
    if match is None:
        raise BadQuantity(text)
    sign, number, exponent, suffix = match.groups()
    whole, _, fraction = number.partition(".")
    written = (whole + fraction).lstrip("0")
    digits, shift = _leading(written) if len(written) > _DIGITS else (int(written or "0"), 0)
    shift -= len(fraction)
    if suffix in _BINARY:
        digits = (digits << _BINARY[suffix]) * NANO
    else:
        shift += (_power(exponent) if exponent else _DECIMAL[suffix or ""]) + 9
    if digits and shift > _DIGITS:
        size = _LARGEST
    elif shift < -3 * _DIGITS:
        size = min(digits, 1)
    else:
        size = digits * 10**shift if shift >= 0 else -(-digits // 10**-shift)
    size = min(size, _LARGEST)
    return -size if sign == "-" else size


def _leading(written: str) -> tuple[int, int]:
    """Returns the leading digits of a long number, incremented where digits follow, and the number of those."""
    rest = written[_DIGITS:]
    return int(written[:_DIGITS]) + bool(rest.strip("0")), len(rest)


def _power(exponent: str) -> int:
    """Returns the power of ten of `e12` or `E-3`, limited for excessive exponents."""
    digits = exponent[1:].lstrip("+-").lstrip("0")
    size = int(digits or "0") if len(digits) < 6 else 10**6
    return -size if exponent[1] == "-" else size


def milli(amount_nanos: int) -> int:
    """Converts nanos to thousandths, rounded up: cpu in milli-cores."""
    return -(-amount_nanos // 1_000_000)


def value(amount_nanos: int) -> int:
    """Converts nanos to whole units, rounded up: bytes, devices, pods."""
    return -(-amount_nanos // NANO)


def amount(resource: str, amount_nanos: int) -> int:
    """Converts nanos to this system's unit of a resource: milli-cores for `cpu`, whole units for everything else."""
    return milli(amount_nanos) if resource == "cpu" else value(amount_nanos)


def amounts(quantities: Mapping[str, str]) -> dict[str, int]:
    """Converts a ResourceList to integers: `{"cpu": "2", "memory": "1Gi"}` -> `{"cpu": 2000, "memory": 1073741824}`.

    Raises:
        BadQuantity: one of the texts is no quantity.
    """
    return {name: amount(name, nanos(text)) for name, text in quantities.items()}


def milli_text(amount_milli: int) -> str:
    """Formats thousandths as the API does: `1500` -> `"1500m"`, `2000` -> `"2"`, `2_000_000` -> `"2k"`."""
    if amount_milli % 1000:
        return f"{amount_milli}m"
    return _shortest(amount_milli, 1000, ("m", "", "k", "M", "G", "T", "P", "E"))


def bytes_text(size: int) -> str:
    """Formats bytes as the API does: `1500` -> `"1500"`, `4 << 30` -> `"4Gi"`."""
    if abs(size) < 1024:
        return _shortest(size, 1000, ("", "k"))
    if size % 1024:
        return str(size)
    return _shortest(size, 1024, ("", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"))


def _shortest(size: int, step: int, suffixes: tuple[str, ...]) -> str:
    """Divides by `step` as often as it leaves no remainder."""
    times = 0
    while size and times < len(suffixes) - 1 and size % step == 0:
        size //= step
        times += 1
    return f"{size}{suffixes[times]}" if size else "0"
