"""A row as a CloudEvent: every field as it is, `data` byte for byte, and a subject that NATS takes."""

import json
import re
from urllib.parse import unquote

import pytest
from cloudevents.core.formats.json import JSONFormat
from hypothesis import given
from hypothesis import strategies as st

from services.audit.cloudevent import CloudEvents, decode_identity, event_subject, time_text, token
from services.audit.service_manifest import stream_of
from shared.log.raw_rows import RawRow

names = st.text(st.characters(exclude_categories=["Cs"]), max_size=60)
data = st.dictionaries(names, st.integers() | names, max_size=5).map(lambda value: json.dumps(value).encode())
rows = st.builds(
    RawRow, st.integers(1, 2**63 - 1), st.just("koord.cluster.PodBound.v1"), st.integers(0, 65_535), names,
    st.integers(0, 4_102_444_800_000_000), names, st.none() | names, st.none() | names, data, st.binary(min_size=32, max_size=32),
)  # fmt: skip


@given(rows)
def test_a_cloud_event_has_the_fields_of_the_row_and_its_data_byte_for_byte(row: RawRow) -> None:
    message = CloudEvents("cluster", "here").encode(row)
    event = json.loads(message)
    assert message[message.index(b',"data":') + 8 : -1] == row.data
    assert (event["id"], event["seq"], event["schema"]) == (f"cluster/{row.seq}", str(row.seq), row.schema)
    assert (event.get("subject", ""), event["actor"], event["digest"]) == (row.key, row.actor, row.digest.hex())
    assert (event.get("cause"), event.get("correlation")) == (row.cause, row.correlation)
    assert event["time"] == time_text(row.at_us)
    assert decode_identity(message).seq == row.seq


def test_the_cloudevents_package_reads_it() -> None:
    row = RawRow(
        7, "koord.cluster.PodBound.v1", 1, "a/b", 1_800_000_000_000_001, "x@1", None, "uid", b'{"pod":"a/b"}', b"d" * 32
    )
    event = JSONFormat().read(None, CloudEvents("metrics-0", "here").encode(row))
    assert (event.get_id(), event.get_source(), event.get_subject()) == ("metrics-0/7", "here", "a/b")
    assert event.get_extension("correlation") == "uid"
    assert event.get_data() == {"pod": "a/b"}
    found = event.get_time()
    assert found is not None
    assert found.microsecond == 1


@given(names)
def test_a_key_is_one_token_of_a_subject_and_can_be_read_back(key: str) -> None:
    found = token(key)
    assert re.fullmatch(r"[^.*>\s\x00-\x1f\x7f]+", found)
    if key:
        assert unquote(found) == key


@pytest.mark.parametrize(
    ("key", "found"),
    [
        ("shop/web-0", "shop/web-0"),
        ("a.b", "a%2Eb"),
        ("100%", "100%25"),
        ("a b\n*>", "a%20b%0A%2A%3E"),
        ("", "%"),
        ("ü", "ü"),
    ],
)
def test_only_characters_that_a_subject_cannot_hold_are_encoded(key: str, found: str) -> None:
    assert (
        event_subject("cluster", "koord.cluster.PodBound.v1", key)
        == f"koord.event.cluster.koord.cluster.PodBound.v1.{found}"
    )


def test_an_unknown_type_cannot_inject_other_fields() -> None:
    found = event_subject("cluster", "x\r\nPUB koord.log.cluster 0\r\n", "k")
    assert found == "koord.event.cluster.x%0D%0APUB%20koord%2Elog%2Ecluster%200%0D%0A.k"


def test_a_long_key_ends_in_its_digest() -> None:
    long, other = token("." * 2_000), token("." * 2_001)
    assert len(long) < 1_100
    assert long != other


def test_a_row_too_large_for_a_message_is_sent_without_its_data() -> None:
    row = RawRow(7, "t.v1", 1, "k", 0, "x", None, None, b'"' + b"y" * 2_000 + b'"', b"d" * 32)
    event = json.loads(CloudEvents("cluster", "here").encode(row, most_bytes=2_000))
    assert "data" not in event
    assert event["dataref"] == "koord.log.read.cluster"


def test_each_context_has_a_stream_of_its_own() -> None:
    assert [stream_of(name) for name in ("cluster", "metrics-0")] == ["KOORD_EVENTS_CLUSTER", "KOORD_EVENTS_METRICS_0"]
