"""Which events outlast their partition: the newest of each subject, and the last one that has positions."""

from shared.events import RecordedEvent
from shared.events.intents import FieldsDesired
from shared.log.retention_carry_forward import CarryForward, Newest, copies

RULE = CarryForward(
    kinds=(FieldsDesired,),
    subject=lambda record: record.event.key,
    holds=lambda _state, _kept: lambda _record: False,
    with_positions=True,
)


def desired(seq: int, name: str, *, begins_append: bool) -> RecordedEvent:
    """Desired fields of an object that is gone meanwhile."""
    event = FieldsDesired(resource="things", name=name, fields="status", patch={"seq": seq})
    event = event if not begins_append else _with_positions(event)
    return RecordedEvent("own", seq, event, seq)


def _with_positions(event: FieldsDesired) -> FieldsDesired:
    return FieldsDesired(
        resource=event.resource, name=event.name, fields=event.fields, patch=event.patch, seen={"cluster": 7}, now_ns=1
    )


def kept(*records: RecordedEvent) -> list[int]:
    """The seqs of the events that are carried forward of a partition in which nothing holds any more."""
    newest = Newest(RULE)
    for record in records:
        newest.add(record)
    found = newest.candidates().values()
    assert len(copies(list(found), lambda _record: False)) == sum(one.is_basis for one in found)
    return sorted(one.record.seq for one in found if one.is_basis)


def test_the_last_event_that_has_positions_is_carried_forward_although_it_does_not_hold() -> None:
    assert kept(desired(1, "a", begins_append=True), desired(2, "b", begins_append=False)) == [1]


def test_what_replaced_the_last_event_that_has_positions_is_carried_forward_with_it() -> None:
    """Alone, the copy of the replaced one would hold again in a fold that begins with it."""
    assert kept(desired(1, "a", begins_append=True), desired(2, "a", begins_append=False)) == [1, 2]
    assert kept(desired(1, "a", begins_append=False), desired(2, "a", begins_append=True)) == [2]


def test_it_is_carried_forward_again_for_as_long_as_a_copy_of_what_it_replaced_stays() -> None:
    """The copy of the newer one lies in the partition that is dropped, that of the older one behind it."""
    newest = Newest(RULE, [desired(1, "a", begins_append=True), desired(2, "a", begins_append=False)])
    newest.add(desired(2, "a", begins_append=False), is_copy=True)
    assert [one.record.seq for one in newest.candidates().values() if one.is_basis] == [2]
    newest.add(desired(1, "a", begins_append=True), is_copy=True)
    assert [one.record.seq for one in newest.candidates().values() if one.is_basis] == []
