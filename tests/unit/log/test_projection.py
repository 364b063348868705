"""A State that is held for a decision stays at its positions; what is received meanwhile is folded at the end, once and
in order.
"""

import pytest

from shared.events import RecordedEvent
from shared.events.log import ConfigApplied
from shared.log.codec import Unreadable
from shared.log.position import Position
from shared.log.projection import Projection


class Texts:
    """A State that keeps the texts of configurations; `bad` cannot be folded."""

    def __init__(self) -> None:
        self.positions: dict[str, int] = {}
        self.texts: list[str] = []

    def apply(self, record: RecordedEvent) -> None:
        assert isinstance(record.event, ConfigApplied)
        if record.event.text == "bad":
            raise ValueError("bad")
        self.texts.append(f"{record.context}/{record.event.text}")


def projection() -> Projection:
    return Projection(None, {"a": None, "b": None}, Texts())  # type: ignore[dict-item, arg-type]  # nothing is read or decoded


def receive(folding: Projection, context: str, seq: int, text: str) -> None:
    record = RecordedEvent(context, seq, ConfigApplied(source="", digest="", text=text), 0)
    folding.take(context, iter([record]), Position(seq, b""))


def test_a_held_state_keeps_its_positions_and_folds_the_rest_in_the_order_of_arrival_when_it_is_released() -> None:
    folding = projection()
    receive(folding, "a", 1, "first")
    folding.hold()
    for context, seq in (("b", 1), ("a", 2), ("b", 2)):
        receive(folding, context, seq, str(seq))
    assert (folding.state.texts, folding.state.positions, folding.folded) == (["a/first"], {"a": 1}, 1)  # type: ignore[attr-defined]
    assert {name: position.seq for name, position in folding.positions.items()} == {"a": 2, "b": 2}, "all was received"
    assert {name: position.seq for name, position in folding.folded_positions.items()} == {"a": 1, "b": 0}
    folding.release()
    assert folding.state.texts == ["a/first", "b/1", "a/2", "b/2"]  # type: ignore[attr-defined]
    assert (folding.state.positions, folding.folded) == ({"a": 2, "b": 2}, 4)
    assert folding.positions == folding.folded_positions
    receive(folding, "a", 3, "at once")
    assert folding.state.texts[-1] == "a/at once"  # type: ignore[attr-defined]


def test_an_event_of_a_hold_that_cannot_be_folded_is_named_when_it_ends() -> None:
    folding = projection()
    folding.hold()
    receive(folding, "a", 1, "bad")
    with pytest.raises(Unreadable) as unreadable:
        folding.release()
    assert (unreadable.value.context, unreadable.value.seq, folding.sound) == ("a", 1, False)
