"""JSON and numbers in annotations of users, read as strictly as upstream does: the whole value, or none of it."""

import re
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from shared.kube.json_text import read_json
from shared.kube.quantity import BadQuantity, amount, nanos

Int64 = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]
"""An integer that upstream's int64 can hold."""

_WHOLE = re.compile(r"[+-]?[0-9]+")
_WHOLE_DIGITS = 40  # more digits than any int64 has; a longer number is none


def read_counts(text: str | None) -> dict[str, int]:
    """`{"cpu": 85}`; empty when the text is absent, ill-formed, or one of its values is no integer."""
    if not text:
        return {}
    try:
        annotated = read_json(text, dict[str, Int64 | None] | None) or {}
    except msgspec.MsgspecError:
        return {}
    return {name: value or 0 for name, value in annotated.items()}


def read_amounts(text: str | None) -> dict[str, int]:
    """`{"cpu": "1500m", "memory": 1e9}` in milli-cores and whole units; empty when any of it is ill-formed."""
    if not text:
        return {}
    try:
        annotated = read_json(text, dict[str, msgspec.Raw] | None) or {}
        return {name: amount(name, _nanos(bytes(raw))) for name, raw in annotated.items()}
    except (msgspec.MsgspecError, BadQuantity):
        return {}


def read_whole(text: str | None) -> int:
    """A decimal int64 such as `60` or `+60`; -1 for anything else, which stands for unset."""
    if text is None or len(text) > _WHOLE_DIGITS or not _WHOLE.fullmatch(text):
        return -1
    number = int(text)
    return number if -(2**63) <= number < 2**63 else -1


def _nanos(raw: bytes) -> int:
    if raw == b"null":
        return 0
    value: Any = msgspec.json.decode(raw) if raw.startswith(b'"') else raw.decode()
    return nanos(value.strip())
