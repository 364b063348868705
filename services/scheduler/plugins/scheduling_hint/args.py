"""SchedulingHintArgs. Source: spec/scheduler-core.md 1.6; spec/api.md 4.3."""

from collections.abc import Mapping
from typing import Any

import msgspec

from services.scheduler.plugins.helper.plugin_args import decode_args
from shared.errors import KoordError

MAX_HINT_NODES = 100


class BadHintArgs(KoordError):
    """SchedulingHintArgs that cannot be used."""


class _Args(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    max_hint_nodes: int = MAX_HINT_NODES


def read_hint_args(raw: Mapping[str, Any], source: str) -> int:
    """The number of preferred nodes of a hint that are considered.

    Raises:
        BadHintArgs: a field is unknown, of the wrong type, or not above 0.
    """
    args = decode_args(raw, _Args, source, BadHintArgs)
    if args.max_hint_nodes <= 0:
        raise BadHintArgs(f"{source}: maxHintNodes is {args.max_hint_nodes}; give a number above 0")
    return args.max_hint_nodes
