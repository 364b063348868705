"""The shape of a service's State: a pure fold over the contexts it follows."""

from typing import ClassVar, Protocol

from shared.events import RecordedEvent


class State(Protocol):
    """What a service knows. A function of `positions` alone, however the contexts' events were interleaved.

    Attributes:
        SCHEMA: version of what `encode` writes; a snapshot with another one is not loaded.
        positions: context -> seq of the last event folded (or passed, when its type is not declared).
    """

    SCHEMA: ClassVar[int]
    positions: dict[str, int]

    def apply(self, record: RecordedEvent) -> None:
        """Folds one event. Believes the log: never refuses, never logs, never looks at a clock."""
        ...

    def encode(self) -> bytes:
        """Everything, in one canonical form: names sorted, no row numbers. Equal States give equal bytes."""
        ...

    def restore(self, data: bytes) -> None:
        """Takes over what `encode` wrote; called once, on a State that is new."""
        ...
