"""An append, cut into messages."""

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from shared.log.announcements import LARGEST, Batch, Entry, decode_batch, encode, shorten, split

sizes = st.lists(
    st.one_of(st.integers(0, 300), st.sampled_from((100_000, 262_000, LARGEST - 129, LARGEST, LARGEST * 2)))
)


def batch_of(*lengths: int) -> Batch:
    entries = [
        Entry("koord.cluster.NodeMetricObserved.v1", "scheduling/123456789", bytes(length), number.to_bytes(32))
        for number, length in enumerate(lengths, 1)
    ]
    return Batch("cluster", epoch=7, first=101, previous=bytes(32), at_us=1, entries=shorten(entries))


@given(sizes.filter(bool))
def test_parts_are_the_batch_again_in_order_each_within_the_limit(lengths: list[int]) -> None:
    batch = batch_of(*lengths)
    parts = list(split(batch))
    assert [entry for part in parts for entry in part.entries] == batch.entries
    first, previous = batch.first, batch.previous
    for part in parts:
        assert (part.context, part.epoch, part.at_us) == (batch.context, batch.epoch, batch.at_us)
        assert (part.first, part.previous) == (first, previous)
        assert part.entries
        assert len(encode(part)) <= LARGEST
        first, previous = part.last + 1, part.entries[-1].digest
    assert first == batch.last + 1


def test_as_few_messages_as_fit() -> None:
    assert len(list(split(batch_of(*[300] * 1000)))) == 1
    assert len(list(split(batch_of(*[300] * 2000)))) == 2


def test_an_event_too_large_for_a_message_is_its_seq_and_digest_alone() -> None:
    batch = batch_of(10, LARGEST, 10)
    assert [bool(entry.data) for entry in batch.entries] == [True, False, True]
    assert batch.entries[1].digest == (2).to_bytes(32)


def test_a_message_reads_as_it_was_written() -> None:
    batch = batch_of(5, 0, 7)
    assert decode_batch(encode(batch)) == batch
    assert msgspec.msgpack.decode(encode(batch))[:3] == ["cluster", 7, 101]
