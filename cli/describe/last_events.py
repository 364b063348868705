"""The last events about an object, as one line each."""

from collections.abc import Collection
from typing import Any

import msgspec

from cli.describe.description import Table
from cli.terminal.durations import instant
from shared.log.reader import LogReader, Row

LAST = 12
MOST_CHARACTERS = 100
_COLUMNS = ("at", "event", "type", "message")
_WORDS = ("resource", "reason", "message", "why", "node", "quota", "fields", "phase")
"""Fields that say most about an event, in this order."""


async def last_events(log: LogReader, key: str, contexts: Collection[str], *, uid: str = "") -> Table:
    """Returns the newest events with a key, the oldest of them first.

    Args:
        uid: of the object; events with another `uid` or `pod_uid` are of an earlier object of the name.
    """
    rows: list[Row] = []
    for context in await log.contexts():
        if context in contexts:
            rows += [row async for row in log.rows(context=context, key=key, newest=LAST)]
    rows.sort(key=lambda row: (row.at, row.context, row.seq))
    shown = [(row, msgspec.json.decode(row.data)) for row in rows]
    kept = [(row, data) for row, data in shown if not uid or _uid(data) in ("", uid)]
    return Table(_COLUMNS, [_cells(row, data) for row, data in kept[-LAST:]])


def _uid(data: dict[str, Any]) -> str:
    return str(data.get("uid") or data.get("pod_uid") or "")


def _cells(row: Row, data: dict[str, Any]) -> tuple[str, ...]:
    kind = row.type.rpartition(".v")[0].rpartition(".")[2]
    words = [
        f"{name} {data[name]}" for name in _WORDS if isinstance(data.get(name), str) and data[name] not in ("", row.key)
    ]
    text = "; ".join(words)
    short = text if len(text) <= MOST_CHARACTERS else f"{text[: MOST_CHARACTERS - 1]}…"
    return (instant(row.at), f"{row.context}/{row.seq}", kind, short)
