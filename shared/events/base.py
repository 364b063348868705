"""Base of all events: past tense, about one object, readable without the code that wrote it.

An event's `data` in the log is its JSON, tag first. The envelope (context, seq, time, actor, cause) is `RecordedEvent`.
"""

from typing import ClassVar, NamedTuple, TypeVar

import msgspec


class Event(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", omit_defaults=True, gc=False):
    """Base of all events. The tag is the type's name with its version: `koord.scheduling.PodPlaced.v1`.

    Attributes:
        seen: on the first event of an append only: the positions (context -> seq) that its decisions rest on.
        now_ns: there too: the instant of the decisions, nanoseconds since the epoch.
        config: there too: digest of the configuration in force.
    """

    seen: dict[str, int] | None = None
    now_ns: int | None = None
    config: str | None = None

    SCHEMA: ClassVar[int] = 1
    KEY: ClassVar[str]  # the field that names the object the event is about

    @property
    def key(self) -> str:
        """The object the event is about: `namespace/name`, or a name."""
        return str(getattr(self, self.KEY))

    @classmethod
    def type_name(cls) -> str:
        """The tag under which this type is stored."""
        return str(cls.__struct_config__.tag)


EventT = TypeVar("EventT", bound=Event)


def without_basis(event: EventT) -> EventT:
    """Returns an event without the basis of its append, as all but the first of an append have it."""
    if event.seen is None and event.now_ns is None and event.config is None:
        return event
    return msgspec.structs.replace(event, seen=None, now_ns=None, config=None)


class Cause(msgspec.Struct, frozen=True, order=True, gc=False):
    """The event that led to another one."""

    context: str
    seq: int

    def __str__(self) -> str:
        return f"{self.context}/{self.seq}"

    @classmethod
    def parse(cls, text: str) -> "Cause":
        """Parses `context/seq`."""
        context, _, seq = text.rpartition("/")
        return cls(context, int(seq))


class Draft(NamedTuple):
    """An event to append."""

    event: Event
    cause: Cause | None = None
    correlation: str | None = None  # groups the events of one pod (its uid) or one cycle


class RecordedEvent(msgspec.Struct, frozen=True, gc=False):
    """An event with the part of its envelope that a State may read. The actor and the digest stay in the log.

    Attributes:
        at_ns: instant of the append, by the writer's clock: whole microseconds, in nanoseconds since the epoch.
    """

    context: str
    seq: int
    event: Event
    at_ns: int = 0
    cause: Cause | None = None
