"""The newest desired state of each object that the scheduler writes: only this one outlasts its partition.

A copy of an older one would be in force again once the newest has ended and has left the log, even where both desire
the same.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

from services.scheduler.state.watched_api_resources import (
    CLAIMS,
    NETWORK_TOPOLOGIES,
    POD_GROUPS,
    RESERVATIONS,
    VOLUMES,
)
from shared.events import RecordedEvent
from shared.events.intents import FieldsDesired

WRITTEN = (CLAIMS, VOLUMES, RESERVATIONS, POD_GROUPS, NETWORK_TOPOLOGIES)
"""Resources whose objects have one group of desired fields."""


class NewestWrite(NamedTuple):
    """A desired state.

    Attributes:
        uid: of the object.
        seq: in `scheduling`, of its FieldsDesired.
    """

    uid: str
    seq: int


class NewestWrites:
    """Resource -> key of the object -> its newest desired state."""

    def __init__(self, of: dict[str, dict[str, NewestWrite]] | None = None) -> None:
        self.of: dict[str, dict[str, NewestWrite]] = of or {}

    def note(self, event: FieldsDesired, seq: int) -> None:
        """Notes a desired state."""
        if event.resource in WRITTEN:
            self.of.setdefault(event.resource, {})[event.name] = NewestWrite(event.uid, seq)

    def forget(self, resource: str, name: str, uid: str) -> None:
        """Forgets that of a deleted object; one of the same name that came after it has its own."""
        there = self.of.get(resource, {})
        if name in there and there[name].uid == uid:
            del there[name]

    def forget_the_gone(self, objects: Mapping[str, Mapping[str, Mapping[str, Any]]]) -> None:
        """Forgets those of objects that are not there."""
        for resource, writes in self.of.items():
            there = objects.get(resource, {})
            for name, write in list(writes.items()):
                if (there.get(name, {}).get("metadata") or {}).get("uid") != write.uid:
                    del writes[name]

    def is_newest(self, event: FieldsDesired, record: RecordedEvent) -> bool:
        """Returns True for the newest desired state of its object."""
        return self.of.get(event.resource, {}).get(event.name) == NewestWrite(event.uid, record.seq)
