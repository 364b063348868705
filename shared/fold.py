"""The interface of a service's State: a pure fold over the contexts it follows."""

from typing import ClassVar, Protocol, runtime_checkable

from shared.events import RecordedEvent


class State(Protocol):
    """State of a service: a function of `positions` alone, however the events of the contexts were interleaved.

    Attributes:
        SCHEMA: version of the result of `encode`; a snapshot with another one is not loaded.
        positions: context -> seq of the last event folded (or skipped, when its type is not declared).
    """

    SCHEMA: ClassVar[int]
    positions: dict[str, int]

    def apply(self, record: RecordedEvent) -> None:
        """Folds one event. Accepts every event in the log: never rejects, never logs, never reads a clock."""
        ...

    def encode(self) -> bytes:
        """Encodes everything in one canonical form: names sorted, no row numbers. Equal States give equal bytes."""
        ...

    def restore(self, data: bytes) -> None:
        """Restores the result of `encode`; called once, on a new State."""
        ...


@runtime_checkable
class BeginsLate(Protocol):
    """A State that keeps something of one context until another context explains it."""

    def history_begins(self, context: str, seq: int) -> None:
        """Forgets what waits for events of a context up to `seq`: those that still hold have been folded, the others have
        left the log.
        """
        ...
