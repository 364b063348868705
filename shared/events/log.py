"""Events about the log itself; any writer may append them."""

from typing import ClassVar

import msgspec

from shared.events.base import Event


class WriterStarted(Event, frozen=True, tag="koord.log.WriterStarted.v1"):
    """A replica took over as the writer of this context. Records of an earlier epoch that arrive later are ignored.

    Attributes:
        epoch: larger than every earlier one; at least the database's clock in milliseconds.
        release: the version of the code that writes from here on.
        emits: the event types, with their versions, that this release may append.
        libraries: name -> version of the libraries that decisions are computed with.
    """

    KEY: ClassVar[str] = "writer"

    epoch: int
    release: str
    emits: tuple[str, ...] = ()
    writer: str = "writer"
    libraries: dict[str, str] = msgspec.field(default_factory=dict)


class ConfigApplied(Event, frozen=True, tag="koord.log.ConfigApplied.v1"):
    """A configuration came into force for this context's decisions.

    Attributes:
        source: where it came from: a file, a ConfigMap, the built-in default.
        digest: SHA-256 of `text`, hexadecimal; decisions refer to it.
        text: the whole configuration.
    """

    KEY: ClassVar[str] = "source"

    source: str
    digest: str
    text: str
    settings: dict[str, str] = msgspec.field(default_factory=dict)


class ConfigRejected(Event, frozen=True, tag="koord.log.ConfigRejected.v1"):
    """A configuration was rejected; the last good one stays in force.

    Attributes:
        path: place of the error in the text.
        reason: the error and its correction.
    """

    KEY: ClassVar[str] = "source"

    source: str
    digest: str
    path: str
    reason: str


class CarriedForward(Event, frozen=True, tag="koord.log.CarriedForward.v1"):
    """An event that still holds, appended again because the partition that held it is dropped.

    A fold that begins at the oldest kept event gets these events first, as they were: with their own seq, instant and
    cause. A State that has folded the event itself ignores this copy.

    Attributes:
        name: key of the event.
        original: its `context/seq`; no longer in the log.
        event: the event as it was, with its type; with the positions that its append rested on.
        at_us: instant of its append, microseconds since the epoch.
        cause: its cause, `context/seq`; empty for none.
    """

    KEY: ClassVar[str] = "name"

    name: str
    original: str
    event: msgspec.Raw
    at_us: int = 0
    cause: str = ""
