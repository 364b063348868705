"""ElasticQuotaProfiles make the root quotas of trees, as large as the nodes that they select."""

import json
from typing import Any

import pytest

from services.quota_ledger.decide.profile_quotas import profile_quotas, scaled
from services.quota_ledger.state.ledger_state import LedgerState
from services.quota_ledger.state.profile_resources import RESOURCE, tree_of
from shared.events import Event, RecordedEvent
from shared.events.cluster import NodeDeleted, NodeObserved, ObjectDeleted, ObjectObserved
from shared.events.intents import FieldsDesired, ObjectDesired
from shared.kube.elastic_quota import PREFIX, RESOURCES
from shared.kube.instants import SECOND
from shared.kube.meta import Metadata
from shared.kube.node import Node, NodeCondition, NodeSpec, NodeStatus
from tests.support.quota_logs import Logs


def node(name: str, pool: str, cpu: str = "10", *, ready: bool = True, cordoned: bool = False, gpu: str = "") -> Event:
    status = NodeStatus(
        allocatable={"cpu": cpu, "memory": "20Gi"} | ({"nvidia.com/gpu": gpu} if gpu else {}),
        conditions=(NodeCondition(type="Ready", status="True" if ready else "Unknown"),),
    )
    metadata = Metadata(name=name, labels={"pool": pool})
    return NodeObserved(node=name, object=Node(metadata=metadata, spec=NodeSpec(unschedulable=cordoned), status=status))


def profile(spec: dict[str, Any] | None = None, labels: dict[str, str] | None = None, keys: str = "") -> Event:
    raw = {
        "metadata": {"name": "p", "namespace": "ns", "uid": "u", "labels": labels or {}},
        "spec": {"quotaName": "pool-a", "nodeSelector": {"matchLabels": {"pool": "a"}}, **(spec or {})},
    }
    if keys:
        raw["metadata"]["annotations"] = {PREFIX + "resource-keys": keys}
    return ObjectObserved(resource=RESOURCE, name="ns/p", uid="u", object=raw)


def made(logs: Logs) -> list[Event]:
    found = []
    for draft in profile_quotas(logs.state, logs.now_ns):
        record = RecordedEvent("quota", logs.state.positions.get("quota", 0) + 1, draft.event, logs.now_ns)
        logs.state.apply(record)
        found.append(draft.event)
    return found


def body(logs: Logs) -> dict[str, Any]:
    [event] = [event for event in made(logs) if isinstance(event, ObjectDesired)]
    assert (event.resource, event.name) == (RESOURCES[0], "ns/pool-a")
    assert event.body is not None
    return event.body


def two_pools() -> Logs:
    logs = Logs()
    logs.append("cluster", node("a1", "a"), node("a2", "a", cordoned=True), node("b1", "b"))
    return logs


def test_a_profile_becomes_the_root_of_a_tree_as_large_as_its_nodes() -> None:
    logs = two_pools()
    logs.append("cluster", profile())
    labelled, quota = made(logs)
    assert labelled == FieldsDesired(
        resource=RESOURCE,
        name="ns/p",
        fields="quota-tree",
        patch={"metadata": {"labels": {PREFIX + "tree-id": "5367319587633080321"}}},
        uid="u",
    )
    assert quota == ObjectDesired(
        resource=RESOURCES[0],
        name="ns/pool-a",
        body={
            "metadata": {
                "labels": {
                    PREFIX + "profile": "p",
                    PREFIX + "tree-id": "5367319587633080321",
                    PREFIX + "is-root": "true",
                },
                "annotations": {
                    PREFIX + "total-resource": '{"cpu":"20","memory":"40Gi"}',
                    PREFIX + "unschedulable-resource": '{"cpu":"10","memory":"20Gi"}',
                },
            },
            "spec": {
                "min": {"cpu": "20", "memory": "40Gi"},
                "max": {"cpu": "4611686018427387", "memory": "4611686018427387"},
            },
        },
    )
    assert made(logs) == []  # recorded once


def test_a_node_that_comes_goes_or_fails_moves_the_quota() -> None:
    logs = two_pools()
    logs.append("cluster", profile(labels={PREFIX + "tree-id": "t"}))
    assert body(logs)["spec"]["min"]["cpu"] == "20"
    logs.append("cluster", node("a3", "a", "4500m", ready=False))
    assert made(logs) == []  # written just now
    logs.now_ns += SECOND
    now = body(logs)
    assert now["spec"]["min"]["cpu"] == "24500m"
    unusable = json.loads(now["metadata"]["annotations"][PREFIX + "unschedulable-resource"])
    assert unusable == {"cpu": "14500m", "memory": "40Gi"}
    logs.append("cluster", NodeDeleted(node="a1", node_uid=""), node("a2", "b"))
    logs.now_ns += SECOND
    assert body(logs)["spec"]["min"]["cpu"] == "4500m"


def test_a_resource_that_no_node_names_counts_as_zero_in_min_and_not_at_all_in_the_total() -> None:
    logs = two_pools()
    logs.append("cluster", profile(keys='["cpu", "nvidia.com/gpu"]'))
    found = body(logs)
    assert found["spec"]["min"] == {"cpu": "20", "nvidia.com/gpu": "0"}
    assert "nvidia.com/gpu" not in found["metadata"]["annotations"][PREFIX + "total-resource"]
    logs.append("cluster", node("a1", "a", gpu="0"))
    logs.now_ns += SECOND
    total = json.loads(body(logs)["metadata"]["annotations"][PREFIX + "total-resource"])
    assert total["nvidia.com/gpu"] == "0"


@pytest.mark.parametrize(
    ("ratio", "cpu"),
    [("0.9", 900), ("1", 1000), ("0.333", 333), ("1.5", 1000), ("0", 1000), ("-1", 1000), ("half", 1000)],
)
def test_a_ratio_scales_and_cuts_off_and_one_that_is_none_is_ignored(ratio: str, cpu: int) -> None:
    assert scaled({"cpu": 1000}, ratio) == {"cpu": cpu}


def test_labels_of_the_profile_override_all_but_tree_and_root() -> None:
    logs = two_pools()
    labels = {PREFIX + "profile": "mine", PREFIX + "is-root": "false", PREFIX + "is-parent": "true", "team": "x"}
    logs.append("cluster", profile({"quotaLabels": labels}, labels={PREFIX + "tree-id": "t"}))
    assert body(logs)["metadata"]["labels"] == {
        PREFIX + "profile": "mine",
        PREFIX + "is-root": "true",
        PREFIX + "is-parent": "true",
        PREFIX + "tree-id": "t",
        "team": "x",
    }


@pytest.mark.parametrize(
    ("spec", "what"),
    [
        ({"nodeSelector": {"matchExpressions": [{"key": "pool", "operator": "In"}]}}, "pool"),
        ({"quotaName": 7}, "quotaName"),
    ],
)
def test_an_unreadable_profile_creates_nothing_and_records_the_reason(spec: dict[str, Any], what: str) -> None:
    logs = two_pools()
    logs.append("cluster", profile(spec))
    assert made(logs) == []
    assert "ElasticQuotaProfile ns/p" in logs.state.profiles.problems["ns/p"]
    assert what in logs.state.profiles.problems["ns/p"]
    logs.append("cluster", profile())
    assert logs.state.profiles.problems == {}
    assert body(logs)["spec"]["min"]["cpu"] == "20"


def test_a_quota_that_somebody_deletes_is_made_again() -> None:
    logs = two_pools()
    logs.append("cluster", profile(labels={PREFIX + "tree-id": "t"}))
    first = body(logs)
    logs.now_ns += 10 * SECOND
    assert body(logs) == first


def test_the_quota_of_a_deleted_profile_is_released_once_and_made_again_with_the_profile() -> None:
    logs = two_pools()
    logs.append("cluster", profile(labels={PREFIX + "tree-id": "t"}))
    first = body(logs)
    observed = {
        "metadata": {"name": "pool-a", "namespace": "ns", "uid": "q", **first["metadata"]},
        "spec": first["spec"],
    }
    logs.append("cluster", ObjectObserved(resource=RESOURCES[0], name="ns/pool-a", uid="q", object=observed))
    logs.append("cluster", profile({"resourceRatio": "0.5", "nodeSelector": {"matchExpressions": [{}]}}))
    assert made(logs) == [], "which quota an unreadable profile names is not known"
    logs.append("cluster", ObjectDeleted(resource=RESOURCE, name="ns/p", uid="u"))
    assert made(logs) == [FieldsDesired(resource=RESOURCES[0], name="ns/pool-a", fields="", patch={})]
    assert made(logs) == []
    logs.now_ns += 60 * SECOND
    assert made(logs) == [], "the released quota is its users'"
    logs.append("cluster", profile(labels={PREFIX + "tree-id": "t"}))
    assert body(logs) == first


def test_a_restart_repeats_nothing() -> None:
    logs = two_pools()
    logs.append("cluster", profile())
    made(logs)
    again = LedgerState()
    again.restore(logs.state.encode())
    assert profile_quotas(again, logs.now_ns + SECOND) == []
    assert again.encode() == logs.state.encode()
    assert again.profiles.sums == logs.state.profiles.sums


def test_the_tree_that_a_profile_makes_shares_its_nodes_and_the_default_tree_the_rest() -> None:
    logs = two_pools()
    logs.append("cluster", profile({"quotaLabels": {PREFIX + "is-parent": "true"}}))
    quota = body(logs)
    quota["metadata"] |= {"name": "pool-a", "namespace": "ns", "uid": "q"}
    logs.append("cluster", ObjectObserved(resource=RESOURCES[0], name="ns/pool-a", uid="q", object=quota))
    trees = logs.state.projection.trees
    assert trees["5367319587633080321"].capacity["cpu"] == 20_000
    assert trees[""].capacity["cpu"] == 10_000
    assert tree_of(logs.state.profiles.profiles["ns/p"]) in trees
