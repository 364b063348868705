"""Every event type, by the name it is stored under.

A new meaning is a new version with a new tag; the old tag stays readable through an upcaster (`UPCASTERS`), which turns
the decoded JSON of the old version into an event of the new type. Nothing stored is ever rewritten.
"""

from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any, NamedTuple

from shared.events import (
    audit,
    cluster,
    descheduling,
    devices,
    intents,
    log,
    metrics,
    migration,
    nodes,
    quota,
    scheduling,
    slo,
)
from shared.events.base import Cause, Draft, Event, RecordedEvent

CONTEXT_MODULES: Mapping[str, tuple[ModuleType, ...]] = {
    "log": (log,),
    "cluster": (cluster,),
    "scheduling": (scheduling,),
    "intents": (intents,),
    "metrics": (metrics,),
    "nodes": (nodes,),
    "audit": (audit,),
    "quota": (quota,),
    "slo": (slo,),
    "devices": (devices,),
    "descheduling": (descheduling, migration),
}
"""Area of the type name -> the modules that declare its types."""

EVENT_TYPES: Mapping[str, type[Event]] = {
    kind.type_name(): kind
    for modules in CONTEXT_MODULES.values()
    for module in modules
    for kind in vars(module).values()
    if isinstance(kind, type) and issubclass(kind, Event) and kind.type_name().startswith("koord.")
}
"""Stored type name -> class; a base of several types is not stored itself, and has no such name."""


class Upcaster(NamedTuple):
    """Reads an old version: `read` turns its decoded JSON into an event of the type `to`."""

    to: type[Event]
    read: Callable[[dict[str, Any]], Event]


UPCASTERS: Mapping[str, Upcaster] = {}
"""Stored type name of an old version -> its upcaster."""

__all__ = ["CONTEXT_MODULES", "EVENT_TYPES", "UPCASTERS", "Cause", "Draft", "Event", "RecordedEvent", "Upcaster"]
