"""Durations, instants and sizes as people read them."""

from datetime import UTC, datetime

from shared.kube.instants import millisecond_text


def instant(at: datetime) -> str:
    """An instant in UTC with date and zone, to the millisecond, as `--since` takes it: `2026-03-01T12:00:00.250Z`."""
    return f"{at.astimezone(UTC):%Y-%m-%dT%H:%M:%S.%f}"[:-3] + "Z"


def instant_of(ns: int) -> str:
    """Does the same for nanoseconds since the epoch."""
    return millisecond_text(ns)


def second(at: datetime) -> str:
    """Does the same to the second."""
    return f"{at.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}"


def times(count: int) -> str:
    """A number of repetitions: `once`, `3 times`."""
    return "once" if count == 1 else f"{count} times"


def age(seconds: float) -> str:
    """Two units at most: `0.4 s`, `12 s`, `3 m 5 s`, `2 h 10 m`, `3 d 4 h`."""
    if seconds < 10:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    for large, small, size, part in (("d", "h", 86_400, 3_600), ("h", "m", 3_600, 60), ("m", "s", 60, 1)):
        if whole >= size:
            rest = whole % size // part
            return f"{whole // size} {large}" + (f" {rest} {small}" if rest else "")
    return f"{whole} s"


def size(count: float) -> str:
    """Bytes in the largest binary unit of which there is one: `512 B`, `3.4 MiB`."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024:
            return f"{count:,.0f} {unit}" if unit == "B" or count >= 100 else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:,.1f} TiB"
