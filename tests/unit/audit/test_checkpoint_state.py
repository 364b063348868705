"""The audit service's State, when a checkpoint is due, and what it says."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cli.service_list import SERVICES, manifest
from services.audit.decide_signed_checkpoint import checkpoint_drafts, next_checkpoint_ns
from services.audit.last_signed_checkpoint_state import AuditState
from services.audit.service_manifest import CONTEXTS, MANIFEST
from shared.events import RecordedEvent
from shared.events.audit import CheckpointSigned
from shared.events.intents import ObjectDesired
from shared.kube.instants import SECOND
from shared.log.checkpoint import read_statement, statement_of
from shared.log.position import Position


def signed(number: int) -> CheckpointSigned:
    return CheckpointSigned(signer="s", statement=f"text {number}", public_key="k", signature="x")


@given(st.lists(st.integers(0, 3), max_size=20))
def test_a_state_is_a_function_of_its_positions_and_outlasts_a_snapshot(kinds: list[int]) -> None:
    state, again = AuditState(), AuditState()
    for seq, kind in enumerate(kinds, 1):
        event = signed(seq) if kind else ObjectDesired(resource="configmaps", name="a/b", body=None)
        state.apply(RecordedEvent("audit", seq, event, at_ns=seq * SECOND))
    again.restore(state.encode())
    assert again.encode() == state.encode()
    assert next_checkpoint_ns(again, 60) == next_checkpoint_ns(state, 60)


def test_the_first_checkpoint_is_due_at_once_and_the_next_after_its_interval() -> None:
    state = AuditState()
    assert next_checkpoint_ns(state, 60) == 0
    state.apply(RecordedEvent("audit", 3, signed(1), at_ns=100 * SECOND))
    assert next_checkpoint_ns(state, 60) == 160 * SECOND


def test_a_checkpoint_leaves_as_a_config_map_unless_none_is_named() -> None:
    event, intent = checkpoint_drafts(signed(1), "koordinator-system/koordstream-checkpoint", "text\n")
    assert event.event == signed(1)
    assert intent.event == ObjectDesired(
        resource="configmaps",
        name="koordinator-system/koordstream-checkpoint",
        body={"data": {"checkpoint.json": "text\n"}},
    )
    assert len(checkpoint_drafts(signed(1), "", "text\n")) == 1


def test_a_statement_lists_the_heads_in_a_canonical_form_and_can_be_read() -> None:
    heads = {"scheduling": Position(2, b"b" * 32), "cluster": Position(4711, b"a" * 32), "nodes-0": Position()}
    text = statement_of("here", 1_800_000_000_500_000_000, heads)
    assert text == (
        "koordstream checkpoint 1\nsource here\nat 2027-01-15T08:00:00.5Z\n"
        f"cluster 4711 {'61' * 32}\nscheduling 2 {'62' * 32}\n"
    )
    found = read_statement(text)
    assert found.heads == {name: head for name, head in heads.items() if head.seq}
    assert found.source == "here"


@pytest.mark.parametrize("shards", [1, 3])
def test_every_context_that_a_service_writes_is_relayed_into_a_stream(shards: int) -> None:
    assert {manifest(name).writes for name in SERVICES} <= {*CONTEXTS, "audit"}
    member = MANIFEST.member(0, shards)
    sharded = [name for name in member.follows if name[-1].isdigit()]
    assert len(sharded) == 3 * shards
    assert len(member.streams) == len(member.follows)
    assert f"KOORD_EVENTS_METRICS_{shards - 1}" in member.streams
