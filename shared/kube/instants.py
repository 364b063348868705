"""RFC 3339 instants and Go durations as integer nanoseconds: exact, and without a clock."""

import re
from datetime import UTC, datetime
from functools import lru_cache

from shared.errors import KoordError

SECOND = 10**9
"""Nanoseconds in a second."""

_INSTANT = re.compile(r"(\d{4}-\d\d-\d\d[Tt]\d\d:\d\d:\d\d)(?:\.(\d+))?([Zz]|[+-]\d\d:\d\d)")
_DURATION = re.compile(r"([+-]?)((?:(?:\d+\.?\d*|\.\d+)(?:ns|us|µs|μs|ms|s|m|h))+|0)")
_PART = re.compile(r"(\d+\.?\d*|\.\d+)(ns|us|µs|μs|ms|s|m|h)")
_UNIT = {"ns": 1, "us": 10**3, "µs": 10**3, "μs": 10**3, "ms": 10**6, "s": SECOND, "m": 60 * SECOND, "h": 3600 * SECOND}


class BadTime(KoordError):
    """A text that is neither an RFC 3339 instant nor a Go duration."""


@lru_cache(maxsize=65_536)
def instant_ns(text: str) -> int:
    """Parses an instant to nanoseconds since the epoch: `"2026-05-01T20:06:42.5Z"` -> 1777666002500000000.

    Raises:
        BadTime: the text is not RFC 3339, or names a day or an hour that does not exist.
    """
    match = _INSTANT.fullmatch(text)
    if match is None:
        raise BadTime(f"{text!r} is not an instant; write it as 2026-05-01T20:06:42Z")
    seconds, fraction, zone = match.groups()
    try:
        whole = datetime.fromisoformat(seconds.upper() + ("+00:00" if zone in "Zz" else zone))
    except ValueError as error:
        raise BadTime(f"{text!r} is not an instant: {error}") from error
    return int(whole.timestamp()) * SECOND + int((fraction or "0").ljust(9, "0")[:9])


def instant_text(ns: int) -> str:
    """Formats an instant as RFC 3339 in UTC, with as many digits as it needs."""
    whole, fraction = divmod(ns, SECOND)
    text = datetime.fromtimestamp(whole, UTC).strftime("%Y-%m-%dT%H:%M:%S")
    return text + (f".{fraction:09d}".rstrip("0") if fraction else "") + "Z"


def millisecond_text(ns: int) -> str:
    """Formats an instant as RFC 3339 in UTC to the millisecond, always with three digits: `2026-05-01T20:06:42.500Z`."""
    return instant_text(ns // SECOND * SECOND)[:-1] + f".{ns % SECOND // 10**6:03d}Z"


@lru_cache(maxsize=4096)
def duration_ns(text: str) -> int:
    """Parses a Go duration to nanoseconds: `"5m0s"` -> 300_000_000_000.

    Raises:
        BadTime: the text is no Go duration.
    """
    match = _DURATION.fullmatch(text)
    if match is None:
        raise BadTime(f"{text!r} is not a duration; write it as 5m0s, 300ms or 1h30m")
    total = 0
    for number, unit in _PART.findall(match.group(2)):
        whole, _, fraction = number.partition(".")
        total += int(whole or "0") * _UNIT[unit] + int(fraction or "0") * _UNIT[unit] // 10 ** len(fraction)
    return -total if match.group(1) == "-" else total


def duration_text(ns: int) -> str:
    """Formats a duration as Go does: `300_000_000_000` -> `"5m0s"`, with units below a second where it is shorter."""
    size, sign = abs(ns), "-" if ns < 0 else ""
    if size < SECOND:
        unit = next((name for name in ("ms", "µs", "ns") if size >= _UNIT[name]), "s")
        return f"{sign}{_decimal(size, _UNIT[unit])}{unit}"
    minutes, rest = divmod(size, 60 * SECOND)
    text = f"{_decimal(rest, SECOND)}s"
    if minutes:
        hours, minutes = divmod(minutes, 60)
        text = f"{hours}h{minutes}m{text}" if hours else f"{minutes}m{text}"
    return sign + text


def _decimal(size: int, unit: int) -> str:
    whole, fraction = divmod(size, unit)
    digits = f"{fraction:0{len(str(unit)) - 1}d}".rstrip("0") if fraction else ""
    return f"{whole}.{digits}" if digits else str(whole)
