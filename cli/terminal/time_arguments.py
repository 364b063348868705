"""Instants as people give them at a terminal."""

import re
from datetime import UTC, datetime, timedelta

import click

EARLIEST, LATEST = 1970, 9000
"""Years of an instant."""

_AGO = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)")
_UNITS = {"ms": "milliseconds", "s": "seconds", "m": "minutes", "h": "hours", "d": "days"}


class Instant(click.ParamType[datetime]):
    """An instant: how long ago (`90s`, `10m`, `2h`, `1d`), or RFC 3339; without an offset it is UTC."""

    name = "time"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> datetime:
        """The instant, with its offset."""
        text = str(value)
        if ago := _AGO.fullmatch(text):
            return datetime.now(UTC) - timedelta(**{_UNITS[ago[2]]: float(ago[1])})
        try:
            at = datetime.fromisoformat(text)
        except ValueError:
            self.fail(f"{text!r} is neither an age such as 10m nor an instant such as 2026-03-01T12:00:00Z", param, ctx)
        if not EARLIEST <= at.year <= LATEST:
            self.fail(f"{text!r} is no year of a log; give one from {EARLIEST} to {LATEST}", param, ctx)
        return at if at.tzinfo else at.replace(tzinfo=UTC)


at_option = click.option("--at", type=Instant(), default=None, help="As of an instant, or an age such as 10m.")
