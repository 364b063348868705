"""A minimal service for tests: follows `source` and records in `copy`, once for each event there, that it was seen.

python -m tests.support.copier_service      runs it as `koord run` runs a service
"""

import sys
from typing import Annotated, ClassVar

import msgspec
from msgspec import Meta

from shared.events import Cause, Draft, Event, RecordedEvent
from shared.events.log import WriterStarted
from shared.runtime.manifest import Manifest
from shared.runtime.runner import run
from shared.runtime.service import Runtime, Service
from shared.settings import Settings


class Seen(Event, frozen=True, tag="koord.source.Seen.v1"):
    """Something happened in `source`."""

    KEY: ClassVar[str] = "name"

    name: str
    number: int = 0
    text: str = ""


class Passed(Event, frozen=True, tag="koord.source.Passed.v1"):
    """Something happened that the copier does not fold."""

    KEY: ClassVar[str] = "name"

    name: str


class Copied(Event, frozen=True, tag="koord.copy.Copied.v1"):
    """The event of `source` with seq `of` was seen."""

    KEY: ClassVar[str] = "name"

    name: str
    of: int


class CopierSettings(Settings, frozen=True, kw_only=True):
    """KOORD_COPIER_<FIELD>."""

    batch: Annotated[int, Meta(ge=1, description="events an append may have")] = 20
    forget: Annotated[str, Meta(description="a name whose copy the State loses, as a bug would")] = ""


class CopyState:
    """Events seen, and their copies: source seq -> name, source seq -> seqs in `copy`."""

    SCHEMA: ClassVar[int] = 1

    def __init__(self) -> None:
        self.positions: dict[str, int] = {}
        self.seen: dict[int, str] = {}
        self.copied: dict[str, list[int]] = {}

    def apply(self, record: RecordedEvent) -> None:
        """Folds one event."""
        match record.event:
            case Seen(name=name):
                if name == "unfoldable":
                    raise ValueError(name)
                self.seen[record.seq] = name
            case Copied(name=name, of=of):
                self.copied.setdefault(name, []).append(of)
        self.positions[record.context] = record.seq

    def encode(self) -> bytes:
        """In sorted order."""
        seen, copied = sorted(self.seen.items()), dict(sorted(self.copied.items()))
        return msgspec.msgpack.encode(
            {"positions": dict(sorted(self.positions.items())), "seen": seen, "copied": copied}
        )

    def restore(self, data: bytes) -> None:
        """Restores the result of `encode`."""
        plain = msgspec.msgpack.decode(data)
        self.positions, self.seen, self.copied = plain["positions"], dict(plain["seen"]), plain["copied"]


def missing(state: CopyState, most: int) -> list[Draft]:
    """Returns the events of `source` without a copy in our own log, oldest first."""
    copied = sum(len(of) for of in state.copied.values())
    left = list(state.seen.items())[copied:][:most]  # both are in the order of `source`
    return [Draft(Copied(name=name, of=seq), cause=Cause("source", seq)) for seq, name in left]


async def lead(runtime: Runtime) -> None:
    """Copies missing events, then waits for more."""
    settings: CopierSettings = runtime.settings
    while not runtime.draining.is_set():
        if drafts := missing(runtime.state, settings.batch):
            await runtime.append(drafts, now_ns=runtime.now_ns())
            if any(draft.event.key == settings.forget for draft in drafts):
                runtime.state.copied[settings.forget] = [0]
        else:
            await runtime.changed(1.0)


async def count(runtime: Runtime, _question: bytes) -> bytes:
    """Returns the number of copied events."""
    return b"%d" % len(runtime.state.copied)


SERVICE = Service(
    manifest=Manifest("copier", "copy", ("source", "copy"), ("koord.request.copier",)),
    follows={"source": (Seen,), "copy": (Copied,)},
    emits=(Copied, WriterStarted),
    settings=CopierSettings,
    new_state=CopyState,
    lead=lead,
    serves={"koord.request.copier": count},
)

if __name__ == "__main__":
    sys.exit(run(SERVICE))
