"""Decoding a page of events: declared types at once, old versions through their upcasters, the rest not at all."""

from typing import Any, ClassVar

import msgspec
import pytest

from shared.events import UPCASTERS, Cause, Event, RecordedEvent, Upcaster
from shared.events.log import CarriedForward
from shared.log.codec import Codec


class Grew(Event, frozen=True, tag="koord.test.Grew.v2"):
    KEY: ClassVar[str] = "name"

    name: str
    by_milli: int = 0


class Shrank(Event, frozen=True, tag="koord.test.Shrank.v1"):
    KEY: ClassVar[str] = "name"

    name: str


@pytest.fixture
def _upcaster(monkeypatch: pytest.MonkeyPatch) -> None:
    def read(old: dict[str, Any]) -> Grew:
        return Grew(name=old["name"], by_milli=old["by"] * 1000)

    monkeypatch.setitem(UPCASTERS, "koord.test.Grew.v1", Upcaster(Grew, read))


OLD = b'{"type":"koord.test.Grew.v1","name":"a","by":2}'
NEW = b'{"type":"koord.test.Grew.v2","name":"b","by_milli":5,"not_known_here":[1,{}]}'
OTHER = b'{"type":"koord.test.Shrank.v1","name":"c"}'


def test_what_is_not_declared_is_not_decoded() -> None:
    codec = Codec((Grew,))
    assert codec.names == ["koord.test.Grew.v2"]
    assert codec.one("koord.test.Shrank.v1", b"whatever") is None
    assert codec.one("koord.test.Grew.v2", NEW) == Grew(name="b", by_milli=5)
    assert Codec(()).names == []


@pytest.mark.usefixtures("_upcaster")
def test_an_old_version_is_read_alone_and_in_a_page() -> None:
    codec = Codec((Grew, Shrank))
    assert codec.names == ["koord.test.Grew.v1", "koord.test.Grew.v2", "koord.test.Shrank.v1"]
    assert codec.one("koord.test.Grew.v1", OLD) == Grew(name="a", by_milli=2000)
    expected = [Grew(name="b", by_milli=5), Grew(name="a", by_milli=2000), Shrank(name="c")]
    assert codec.page(b",".join((NEW, OLD, OTHER))) == expected
    assert Codec((Shrank,)).names == ["koord.test.Shrank.v1"], (
        "the upcaster of a type that is not declared is not asked"
    )


def test_a_copy_of_an_event_is_read_as_it_was_recorded_and_passes_where_events_are_read() -> None:
    def copy(event: bytes) -> CarriedForward:
        return CarriedForward(name="b", original="test/4", event=msgspec.Raw(event), at_us=7, cause="other/3")

    codec = Codec((Grew,))
    expected = RecordedEvent("test", 4, Grew(name="b", by_milli=5), 7_000, Cause("other", 3))
    assert codec.original(copy(NEW)) == expected
    assert codec.original(copy(OTHER)) is None
    assert codec.one(CarriedForward.type_name(), msgspec.json.encode(copy(NEW))) is None


@pytest.mark.parametrize(
    "bad",
    [
        b'{"type":"koord.test.Grew.v2","by_milli":5}',
        b'{"type":"koord.test.Grew.v2","name":7}',
        b'{"type":"koord.test.Grew.v9","name":"a"}',
        b'{"name":"a"}',
        b"{",
    ],
)
def test_a_page_with_an_event_that_cannot_be_read_raises(bad: bytes) -> None:
    with pytest.raises(msgspec.DecodeError):
        Codec((Grew, Shrank)).page(NEW + b"," + bad)
