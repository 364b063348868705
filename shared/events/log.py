"""Events that any writer's log may hold: they are about the log itself."""

from typing import ClassVar

import msgspec

from shared.events.base import Event


class WriterStarted(Event, frozen=True, tag="koord.log.WriterStarted.v1"):
    """A replica took over as the writer of this context. Whatever an earlier epoch still says is ignored.

    Attributes:
        epoch: larger than every earlier one; at least the database's clock in milliseconds.
        release: the version of the code that writes from here on.
        emits: the event types, with their versions, that this release may append.
    """

    KEY: ClassVar[str] = "writer"

    epoch: int
    release: str
    emits: tuple[str, ...] = ()
    writer: str = "writer"


class ConfigApplied(Event, frozen=True, tag="koord.log.ConfigApplied.v1"):
    """A configuration came into force for this context's decisions.

    Attributes:
        source: where it came from: a file, a ConfigMap, the built-in default.
        digest: SHA-256 of `text` and, where there are any, of `settings`, hexadecimal; decisions name it.
        text: the whole configuration.
        settings: settings of the process that shape decisions, such as the size of a batch.
    """

    KEY: ClassVar[str] = "source"

    source: str
    digest: str
    text: str
    settings: dict[str, str] = msgspec.field(default_factory=dict)


class ConfigRejected(Event, frozen=True, tag="koord.log.ConfigRejected.v1"):
    """A configuration was not taken over; the last good one stays in force.

    Attributes:
        path: where in the text the fault is.
        reason: what is wrong and what to do.
    """

    KEY: ClassVar[str] = "source"

    source: str
    digest: str
    path: str
    reason: str


class CarriedForward(Event, frozen=True, tag="koord.log.CarriedForward.v1"):
    """A live object's last event, said again because the partition that held it is dropped. Folds see the event itself.

    Attributes:
        name: key of the event.
        of: `context/seq` it had; no longer in the log.
        event: the event as it was, with its type.
    """

    KEY: ClassVar[str] = "name"

    name: str
    of: str
    event: msgspec.Raw
