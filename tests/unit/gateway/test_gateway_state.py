"""The gateway's State: due intents, in any order of the contexts."""

from collections.abc import Iterable
from hashlib import sha256
from typing import Any

import msgspec
import pytest
from hypothesis import given as holds_for
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry

from services.gateway.effects.intent_types import DesiredState, Intent, ObjectRef
from services.gateway.effects.outcome_events import (
    applied,
    bound,
    failed,
    missing_permission,
    rejected,
    superseded,
    suppressed,
)
from services.gateway.effects.outcomes_without_api_request import (
    refused_outcomes,
    superseded_outcomes,
    without_object,
)
from services.gateway.known_objects import KnownObject, identity_of
from services.gateway.metrics import GatewayMetrics
from services.gateway.state import GatewayState
from shared.domain.node_metric_status import desired_status
from shared.domain.reservation import PRE_ALLOCATION_FIELDS
from shared.events import Cause, Draft, RecordedEvent
from shared.events.cluster import (
    EvictionPaused,
    EvictionsHeld,
    EvictionsReleased,
    NodeObserved,
    ObjectDeleted,
    ObjectObserved,
    PodDeleted,
    PodEvicted,
    PodObserved,
)
from shared.events.intents import EvictionRequested, FieldsDesired, ObjectDesired
from shared.events.log import WriterStarted
from shared.events.metrics import NodeReported, Usage
from shared.events.scheduling import PodPlaced, PodUnschedulable
from shared.kube.resource_names import CLAIMS, DEVICES, VOLUMES
from shared.kube.storage import SELECTED_NODE
from shared.kube.system_annotations import RESERVATION_ALLOCATED
from shared.runtime.declared_intents import DECLARED
from tests.support.gateway_objects import Log, kept, node, pod, state_after
from tests.support.intents import anything

RESERVATIONS = "reservations.scheduling.koordinator.sh"


def observed(name: str, **fields: Any) -> PodObserved:
    body = pod(name, **fields)
    return PodObserved(pod=f"shop/{name}", pod_uid=body["metadata"]["uid"], object=kept("pods", body))


def placed(name: str, node_name: str = "n1") -> PodPlaced:
    return PodPlaced(pod=f"shop/{name}", pod_uid=f"uid-of-{name}", node=node_name, cycle=1, request={})


def unschedulable(name: str, code: str = "InsufficientResource") -> PodUnschedulable:
    return PodUnschedulable(pod=f"shop/{name}", pod_uid=f"uid-of-{name}", cycle=1, code=code, message=code)


def batch_cpu(milli: int, name: str = "n1") -> FieldsDesired:
    patch = {"status": {"allocatable": {"kubernetes.io/batch-cpu": str(milli)}}}
    return FieldsDesired(resource="nodes", name=name, fields="batch", patch=patch, subresource="status")


def device(model: str | None, name: str = "n1") -> ObjectDesired:
    return ObjectDesired(
        resource=DEVICES, name=name, body=None if model is None else {"metadata": {"labels": {"model": model}}}
    )


def reservation(ttl: str | None, name: str = "r1") -> ObjectDesired:
    return ObjectDesired(resource=RESERVATIONS, name=name, body=None if ttl is None else {"spec": {"ttl": ttl}})


def test_a_placement_is_due_until_its_outcome_is_read() -> None:
    log = Log()
    log.append("cluster", observed("a"))
    cause = log.append("scheduling", placed("a"))
    assert list(state_after(log.in_order([])).intents.one_shots) == [cause]
    log.append("cluster", Draft(bound(placed("a")), cause))
    assert not state_after(log.in_order([])).intents.one_shots


def test_an_outcome_may_be_read_before_its_intent() -> None:
    log = Log()
    cause = log.append("scheduling", placed("a"))
    log.append("cluster", Draft(rejected(placed("a"), "gone"), cause))
    state = state_after(log.in_order(["cluster"]))
    assert not state.intents.one_shots
    assert not state.intents.early_outcomes


def test_only_the_newest_desired_state_of_a_field_group_is_due() -> None:
    log = Log()
    older = log.append("slo", batch_cpu(1000))
    newer = log.append("slo", batch_cpu(2000))
    other = log.append("slo", batch_cpu(2000, "n2"))
    state = state_after(log.in_order([]))
    assert list(state.intents.desired) == [newer, other]
    assert list(state.intents.superseded) == [older]
    log.append("cluster", Draft(superseded(batch_cpu(1000)), older))
    assert not state_after(log.in_order([])).intents.superseded


def test_an_applied_desired_state_stays_until_a_newer_one_arrives_or_it_ends() -> None:
    log = Log()
    first = log.append("slo", batch_cpu(1000))
    log.append("cluster", Draft(applied(batch_cpu(1000)), first))
    assert list(state_after(log.in_order([])).intents.applied) == [first]
    second = log.append("slo", batch_cpu(2000))
    state = state_after(log.in_order([]))
    assert not state.intents.applied
    assert list(state.intents.desired) == [second]
    log.append("cluster", Draft(applied(batch_cpu(2000)), second), Draft(superseded(batch_cpu(2000)), second))
    state = state_after(log.in_order([]))
    assert not state.intents.applied
    assert not state.intents.newest


SHARDS = [["devices-0", "devices-1"], ["devices-1", "devices-0"]]


@pytest.mark.parametrize("order", SHARDS)
def test_a_shard_takes_over_what_another_one_desired_before(order: list[str]) -> None:
    """The first inventory after a change of the number of shards: nothing is desired twice, and nothing deleted."""
    log = Log()
    old = log.append("devices-0", device("H100"), at_ns=100)
    new = log.append("devices-1", device("H800"), at_ns=200)
    other_node = log.append("devices-0", device("A100", "n2"), at_ns=100)
    log.append("cluster", Draft(applied(device("H100")), old))
    state = state_after(log.in_order(order))
    assert list(state.intents.outranked) == [old]
    assert state.intents.newest_of(ObjectRef(DEVICES, "n1")) == [new]
    assert state.intents.newest_of(ObjectRef(DEVICES, "n2")) == [other_node]
    (outcome,) = superseded_outcomes(state, ())
    assert (outcome.cause, outcome.event) == (old, superseded(device("H100")))
    assert not superseded_outcomes(state, (old,)), "it is being written"
    log.append("cluster", outcome)
    state = state_after(log.in_order(order))
    assert (list(state.intents.desired), list(state.intents.applied)) == ([new, other_node], [])
    assert not state.intents.outranked
    back = log.append("devices-0", device("H20"), at_ns=300)
    state = state_after(log.in_order(order))
    assert list(state.intents.outranked) == [new]
    assert back in state.intents.desired


@pytest.mark.parametrize("order", SHARDS)
def test_what_one_shard_desired_stays_in_force_until_another_shard_has_an_inventory(order: list[str]) -> None:
    log = Log()
    old = log.append("devices-0", device("H100"), at_ns=100)
    log.append("devices-1", device("H800", "n2"), at_ns=200)
    log.append("cluster", Draft(applied(device("H100")), old))
    state = state_after(log.in_order(order))
    assert list(state.intents.applied) == [old]
    assert not superseded_outcomes(state, ())


def test_a_report_of_the_new_shard_replaces_the_status_that_the_old_one_desired() -> None:
    report = NodeReported(
        node="n1", at_ns=10**18, interval_s=60, aggregate_s=300, usage=Usage(5, 6), status_desired=True
    )
    log = Log()
    old = log.append("metrics-0", report, at_ns=100)
    log.append("metrics-1", report, at_ns=200)
    log.append("slo", batch_cpu(1000), at_ns=50)
    assert list(state_after(log.in_order([])).intents.outranked) == [old]


def test_an_unschedulable_condition_ends_once_it_is_applied() -> None:
    log = Log()
    cause = log.append("scheduling", unschedulable("a"))
    log.append("cluster", Draft(applied(unschedulable("a")), cause))
    state = state_after(log.in_order([]))
    assert not state.intents.applied
    assert not state.intents.newest


def test_a_placement_supersedes_a_condition_that_was_not_written_yet() -> None:
    """Written after the binding, the condition would call a bound pod unschedulable."""
    log = Log()
    report = log.append("scheduling", unschedulable("a"))
    place = log.append("scheduling", placed("a"))
    state = state_after(log.in_order([]))
    assert list(state.intents.superseded) == [report]
    assert list(state.intents.queues[ObjectRef("pods", "shop/a")]) == [place]


def test_a_placement_supersedes_the_reservation_that_took_the_pod_over_on_an_earlier_node() -> None:
    """Else drift repair would write that into the pod again, in place of the one that the placement names."""
    patch = {"metadata": {"annotations": {RESERVATION_ALLOCATED: "{}"}}}
    taken = FieldsDesired(resource="pods", name="shop/a", fields=PRE_ALLOCATION_FIELDS, patch=patch, uid="a")
    log = Log()
    cause = log.append("scheduling", taken)
    log.append("cluster", Draft(applied(taken), cause))
    assert list(state_after(log.in_order([])).intents.applied) == [cause]
    log.append("scheduling", placed("a"))
    assert not state_after(log.in_order([])).intents.applied


def test_a_suppressed_desired_state_is_due_again_after_a_start_of_the_gateway() -> None:
    log = Log()
    cause = log.append("slo", batch_cpu(1000))
    log.append("cluster", NodeObserved(node="n1", object=kept("nodes", node())))
    log.append("cluster", Draft(suppressed(batch_cpu(1000)), cause))
    state = state_after(log.in_order([]))
    assert (list(state.intents.desired), list(state.intents.applied)) == ([], [])
    assert state.intents.suppressed[cause].seq > state.started_seq
    assert not without_object(state, {"nodes"})
    log.append("cluster", WriterStarted(epoch=2, release="x"))
    state = state_after(log.in_order([]))
    assert state.intents.suppressed[cause].seq < state.started_seq
    log.append("cluster", Draft(applied(batch_cpu(1000)), cause))
    state = state_after(log.in_order([]))
    assert list(state.intents.applied) == [cause]
    assert not state.intents.suppressed


def test_a_desired_state_that_was_given_up_stays_due_until_it_is_applied() -> None:
    log = Log()
    cause = log.append("slo", batch_cpu(1000))
    log.append("cluster", NodeObserved(node="n1", object=kept("nodes", node())))
    log.append("cluster", Draft(failed(batch_cpu(1000), "no answer"), cause))
    for order in ([], ["cluster", "cluster", "slo"]):
        state = state_after(log.in_order(order))
        assert (list(state.intents.desired), list(state.intents.given_up)) == ([], [cause])
        restored = GatewayState(anything)
        restored.restore(state.encode())
        assert restored.intents.given_up == state.intents.given_up
    assert not without_object(state, {"nodes"})
    log.append("cluster", Draft(applied(batch_cpu(1000)), cause))
    state = state_after(log.in_order([]))
    assert (list(state.intents.given_up), list(state.intents.applied)) == ([], [cause])


def test_a_desired_state_without_permission_stays_due_and_is_counted() -> None:
    log = Log()
    cause = log.append("slo", batch_cpu(1000))
    log.append("cluster", NodeObserved(node="n1", object=kept("nodes", node())))
    log.append("cluster", Draft(missing_permission(batch_cpu(1000), "patch nodes/status"), cause))
    state = state_after(log.in_order([]))
    assert list(state.intents.given_up) == [cause]
    registry = CollectorRegistry()
    GatewayMetrics(registry).watch_given_up(lambda: len(state.intents.given_up))
    assert registry.get_sample_value("koord_gateway_desired_states_given_up") == 1
    log.append("cluster", Draft(applied(batch_cpu(1000)), cause))
    state = state_after(log.in_order([]))
    assert registry.get_sample_value("koord_gateway_desired_states_given_up") == 0


def test_a_newer_desired_state_replaces_one_that_was_given_up() -> None:
    log = Log()
    older = log.append("slo", batch_cpu(1000))
    log.append("cluster", Draft(failed(batch_cpu(1000), "no answer"), older))
    newer = log.append("slo", batch_cpu(2000))
    for order in ([], ["cluster", "slo", "slo"], ["slo", "slo", "cluster"]):
        intents = state_after(log.in_order(order)).intents
        assert (list(intents.desired), list(intents.given_up), list(intents.superseded)) == ([newer], [], [])


def test_a_desired_state_that_was_given_up_ends_with_its_object_unless_it_would_create_the_object() -> None:
    log = Log()
    amounts, making = log.append("slo", batch_cpu(1000)), log.append("slo", reservation("1h"))
    log.append(
        "cluster",
        Draft(failed(batch_cpu(1000), "no answer"), amounts),
        Draft(failed(reservation("1h"), "no answer"), making),
    )
    assert without_object(state_after(log.in_order([])), {"nodes", RESERVATIONS}) == {amounts}


def test_desired_fields_wait_for_their_object_until_it_is_applied() -> None:
    log = Log()
    making = log.append("slo", reservation("1h"))
    status = FieldsDesired(resource=RESERVATIONS, name="r1", fields="status", patch={"status": {"phase": "Available"}})
    filling, of_another = log.append("slo", status), log.append("scheduling", status)
    assert state_after(log.in_order([])).intents.waits_for_object(filling, status)
    log.append("cluster", Draft(failed(reservation("1h"), "no answer"), making))
    intents = state_after(log.in_order([])).intents
    assert intents.waits_for_object(filling, status)
    assert not intents.waits_for_object(of_another, status)
    assert not intents.waits_for_object(making, reservation("1h"))
    log.append("cluster", Draft(applied(reservation("1h")), making))
    assert not state_after(log.in_order([])).intents.waits_for_object(filling, status)


def fields_of(resource: str, name: str, patch: dict[str, Any]) -> FieldsDesired:
    return FieldsDesired(resource=resource, name=name, fields="volume-binding", patch=patch, uid="uid-1")


@pytest.mark.parametrize(
    "desired",
    [
        unschedulable("a"),
        reservation(None),
        fields_of(VOLUMES, "v", {"spec": {"claimRef": {"namespace": "d", "name": "c"}}}),
    ],
)
def test_a_desired_state_that_ends_once_applied_ignores_later_outcomes(desired: DesiredState) -> None:
    log = Log()
    cause = log.append("slo", desired)
    log.append("cluster", Draft(applied(desired), cause), Draft(suppressed(desired), cause))
    for order in (["slo", "cluster", "cluster"], ["cluster", "cluster", "slo"]):
        state = state_after(log.in_order(order))
        assert (list(state.intents.newest), list(state.intents.suppressed), list(state.intents.early_outcomes)) == (
            [],
            [],
            [],
        )


def test_the_selected_node_of_a_claim_is_written_again_until_it_is_withdrawn() -> None:
    """A node that a provisioner rejects before the claim is observed would be lost otherwise."""
    selected = fields_of(CLAIMS, "d/c", {"metadata": {"annotations": {SELECTED_NODE: "n"}}})
    log = Log()
    cause = log.append("scheduling", selected)
    log.append("cluster", Draft(applied(selected), cause))
    assert list(state_after(log.in_order([])).intents.applied) == [cause]


def test_a_newer_desired_state_replaces_a_suppressed_one() -> None:
    log = Log()
    older = log.append("slo", batch_cpu(1000))
    log.append("cluster", Draft(suppressed(batch_cpu(1000)), older))
    newer = log.append("slo", batch_cpu(2000))
    for order in ([], ["cluster", "slo", "slo"], ["slo", "slo", "cluster"]):
        state = state_after(log.in_order(order))
        assert list(state.intents.desired) == [newer]
        assert not state.intents.superseded
        assert not state.intents.suppressed


def test_a_suppressed_placement_is_not_due_after_a_start() -> None:
    log = Log()
    cause = log.append("scheduling", placed("a"))
    log.append("cluster", Draft(suppressed(placed("a")), cause), WriterStarted(epoch=2, release="x"))
    assert not state_after(log.in_order([])).intents.one_shots


def test_a_suppressed_desired_state_without_object_is_found_unless_it_would_create_the_object() -> None:
    log = Log()
    report = log.append("scheduling", unschedulable("a"))
    making = log.append("slo", reservation("1h"))
    log.append("cluster", Draft(suppressed(unschedulable("a")), report), Draft(suppressed(reservation("1h")), making))
    assert without_object(state_after(log.in_order([])), {"pods", RESERVATIONS}) == {report}


def test_an_applied_deletion_has_ended() -> None:
    log = Log()
    cause = log.append("descheduling", reservation(None))
    log.append("cluster", Draft(applied(reservation(None)), cause))
    assert not state_after(log.in_order([])).intents.newest


def test_a_recreated_pod_is_another_pod() -> None:
    log = Log()
    log.append("cluster", observed("a", uid="first", node="n1"), observed("a", uid="second"))
    log.append("cluster", PodDeleted(pod="shop/a", pod_uid="first"))  # late
    state = state_after(log.in_order([]))
    assert [(key, pod.uid) for key, pod in state.pods.items()] == [("shop/a", "second")]
    assert state.pod("shop/a", "second") is state.known["pods"]["shop/a"]
    assert state.pod("shop/a", "first") is None


UIDS = st.one_of(st.uuids().map(str), st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=40))


@holds_for(UIDS)
def test_the_identity_of_an_object_has_its_uid(uid: str) -> None:
    assert KnownObject(identity_of(uid, {})).uid == uid


@holds_for(UIDS, UIDS)
def test_objects_with_different_uids_have_different_identities(one: str, other: str) -> None:
    assert (identity_of(one, {}) == identity_of(other, {})) == (one == other)
    assert identity_of(one, {}) != identity_of(one, {"a": 1})


NAMES = st.sampled_from(["a", "b"])
INTENTS = st.one_of(
    st.builds(placed, NAMES, st.sampled_from(["n1", "n2"])),
    st.builds(unschedulable, NAMES, st.sampled_from(["x", "y"])),
    st.builds(lambda name: EvictionRequested(pod=f"shop/{name}", pod_uid=f"uid-of-{name}", reason="r"), NAMES),
    st.builds(batch_cpu, st.integers(1, 3)),
    st.builds(reservation, st.sampled_from([None, "1h", "2h"])),
)
OBSERVED = st.one_of(
    st.builds(observed, NAMES, uid=st.sampled_from(["", "other"]), node=st.sampled_from(["", "n1"])),
    st.builds(lambda name: PodDeleted(pod=f"shop/{name}", pod_uid=f"uid-of-{name}"), NAMES),
    st.just(NodeObserved(node="n1", object=kept("nodes", node()))),
    st.just(ObjectObserved(resource=RESERVATIONS, name="r1", uid="u", object={"spec": {"ttl": "1h"}})),
    st.just(ObjectDeleted(resource=RESERVATIONS, name="r1", uid="u")),
    st.just(WriterStarted(epoch=2, release="x")),
    st.sampled_from([EvictionsHeld(by="ops", reason="r"), EvictionsReleased(by="ops", reason="r")]),
)


CONTEXTS = ["cluster", "scheduling", "slo", "devices-0", "devices-1"]


@st.composite
def histories(draw: st.DrawFn) -> Log:
    """Contexts of intents, two of them shards, and a `cluster` that answers them later: once, twice or never."""
    log = Log()
    intents: list[tuple[Cause, Intent]] = []
    for _ in range(draw(st.integers(1, 25))):
        step = draw(st.sampled_from(["scheduling", "slo", "devices-0", "devices-1", "answer", "observe"]))
        if step in {"devices-0", "devices-1"}:
            desired = draw(st.builds(device, st.sampled_from([None, "H100", "H800"])))
            intents.append((log.append(step, desired, at_ns=draw(st.integers(1, 3))), desired))
        elif step in {"scheduling", "slo"}:
            intent = draw(INTENTS)
            intents.append((log.append(step, intent), intent))
        elif step == "observe":
            log.append("cluster", draw(OBSERVED))
        elif intents:
            cause, intent = draw(st.sampled_from(intents))
            log.append("cluster", Draft(draw(outcomes(intent)), cause))
    return log


def outcomes(intent: Intent) -> st.SearchStrategy[Any]:
    match intent:
        case PodPlaced():
            return st.sampled_from([bound(intent), rejected(intent, "no"), suppressed(intent)])
        case EvictionRequested():
            pod, uid = intent.pod, intent.pod_uid
            ends = [PodEvicted(pod=pod, pod_uid=uid), PodEvicted(pod=pod, pod_uid=uid, node="n1"), suppressed(intent)]
            return st.sampled_from([*ends, EvictionPaused(pod=pod, pod_uid=uid, reason="node n1")])
        case _:
            return st.sampled_from(
                [
                    applied(intent),
                    superseded(intent),
                    rejected(intent, "no"),
                    failed(intent, "late"),
                    suppressed(intent),
                ]
            )


@holds_for(histories(), st.lists(st.sampled_from(CONTEXTS)), st.integers(0, 60))
def test_any_interleaving_folds_to_the_same_state(log: Log, order: list[str], stop: int) -> None:
    names = [name for name in sorted(log.contexts) for _ in log.contexts[name]][:stop]
    prefix = log.in_order(names)[: len(names)]
    counts = {name: names.count(name) for name in log.contexts}
    shuffled = Log()
    for name, records in log.contexts.items():
        shuffled.contexts[name] = records[: counts[name]]
    one, other = state_after(prefix), state_after(shuffled.in_order(order))
    assert one.encode() == other.encode()
    assert sorted(one.intents.outranked) == sorted(other.intents.outranked)


@holds_for(histories(), st.lists(st.sampled_from(CONTEXTS)), st.integers(0, 60))
def test_a_restored_state_continues_like_the_stored_one(log: Log, order: list[str], stored_at: int) -> None:
    records = log.in_order(order)
    restored = GatewayState(anything)
    restored.restore(state_after(records[:stored_at]).encode())
    for record in records[stored_at:]:
        restored.apply(record)
    whole = state_after(records)
    assert restored.encode() == whole.encode()
    assert restored.intents.newest == whole.intents.newest
    assert restored.intents.field_groups == whole.intents.field_groups
    assert sorted(restored.intents.outranked) == sorted(whole.intents.outranked)
    assert {place: sorted(line) for place, line in restored.intents.queues.items()} == {
        place: sorted(line) for place, line in whole.intents.queues.items()
    }


def test_an_intent_that_its_context_does_not_declare_is_refused_and_never_due() -> None:
    log = Log()
    cordon = FieldsDesired(resource="nodes", name="n1", fields="x", patch={"spec": {"unschedulable": True}})
    cordoned = log.append("metrics-0", cordon)
    evicted = log.append("metrics-0", EvictionRequested(pod="shop/a", pod_uid="uid-of-a", reason="forged"))
    state = declared_state_after(log.in_order([]))
    intents = state.intents
    assert not any((intents.desired, intents.one_shots, intents.queues, intents.newest))
    drafts = refused_outcomes(state)
    assert [(draft.cause, draft.event.key, draft.correlation) for draft in drafts] == [
        (cordoned, "n1", None),
        (evicted, "shop/a", "uid-of-a"),
    ]
    restored = GatewayState()
    restored.restore(state.encode())
    assert refused_outcomes(restored) == drafts


@pytest.mark.parametrize("order", [["cluster"], ["metrics-0"]])
def test_a_refused_intent_has_one_outcome_whichever_context_is_read_first(order: list[str]) -> None:
    log = Log()
    cause = log.append("metrics-0", EvictionRequested(pod="shop/a", pod_uid="uid-of-a", reason="forged"))
    (draft,) = refused_outcomes(declared_state_after(log.in_order([])))
    log.append("cluster", Draft(draft.event, cause))
    state = declared_state_after(log.in_order(order))
    assert not any((state.intents.refused, state.intents.early_outcomes))


@pytest.mark.parametrize("order", [["cluster"], ["metrics-0"]])
def test_a_desired_state_that_was_refused_is_due_once_a_release_declares_it(order: list[str]) -> None:
    log = Log()
    cordon = FieldsDesired(resource="nodes", name="n1", fields="x", patch={"spec": {"unschedulable": True}})
    refused = [
        log.append("metrics-0", event)
        for event in (cordon, EvictionRequested(pod="shop/a", pod_uid="uid-of-a", reason="undeclared"))
    ]
    for draft in refused_outcomes(declared_state_after(log.in_order([]))):
        log.append("cluster", draft)
    upgraded = state_after(log.in_order(order))
    assert list(upgraded.intents.given_up) == refused[:1], "an eviction is decided anew"
    assert not any((upgraded.intents.one_shots, upgraded.intents.early_outcomes))
    newer = log.append("metrics-0", cordon)
    upgraded = state_after(log.in_order(order))
    assert (list(upgraded.intents.given_up), list(upgraded.intents.desired)) == ([], [newer])


def test_other_declarations_raise_the_schema_so_that_snapshots_are_folded_again() -> None:
    digest = sha256(repr(sorted(DECLARED.items())).encode()).hexdigest()[:16]
    assert (GatewayState.SCHEMA, digest) == (33, "233095ca9671f36d"), "raise the SCHEMA, and write both here"


def declared_state_after(records: Iterable[RecordedEvent]) -> GatewayState:
    """Returns the State that checks the intents of each context."""
    state = GatewayState()
    for record in records:
        state.apply(record)
    return state


def test_a_report_is_the_desired_status_of_its_node_and_replaces_one_that_an_earlier_build_recorded() -> None:
    report = NodeReported(node="n1", at_ns=10**18, interval_s=60, aggregate_s=300, usage=Usage(5, 6))
    state, whole = GatewayState(), desired_status(report)
    state.apply(RecordedEvent("metrics-0", 1, report, 0))
    state.apply(RecordedEvent("metrics-0", 2, whole, 0))
    assert state.intents.desired == {Cause("metrics-0", 2): whole}
    newer = msgspec.structs.replace(report, at_ns=2 * 10**18, status_desired=True)
    state.apply(RecordedEvent("metrics-0", 3, newer, 0))
    assert state.intents.desired == {Cause("metrics-0", 3): desired_status(newer)}
    assert state.intents.superseded == {Cause("metrics-0", 2): whole}
    assert desired_status(newer).patch["status"]["nodeMetric"]["nodeUsage"]["resources"] == {"cpu": "5m", "memory": "6"}
    state.apply(RecordedEvent("cluster", 1, applied(whole), 0, Cause("metrics-0", 3)))
    assert state.intents.applied == {Cause("metrics-0", 3): desired_status(newer)}
    state.apply(RecordedEvent("slo", 1, newer, 0))
    assert list(state.intents.refused) == [Cause("slo", 1)]
