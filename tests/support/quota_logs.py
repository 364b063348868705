"""Quotas, nodes and pods as `cluster` records them, and a quota ledger that follows the log in memory."""

from typing import Any

import msgspec

from services.quota_ledger.accounting.verify_invariants_by_replay import holds
from services.quota_ledger.decide.decide_ledger_events import caught_up
from services.quota_ledger.settings import LedgerSettings
from services.quota_ledger.state.ledger_state import LedgerState
from shared.events import Cause, Event, RecordedEvent
from shared.events.cluster import (
    NodeObserved,
    ObjectObserved,
    PodObserved,
)
from shared.kube.elastic_quota import PREFIX, QUOTA_NAME
from shared.kube.instants import SECOND
from shared.kube.meta import Metadata
from shared.kube.node import Node, NodeStatus
from tests.support.pods import kept_pod, observed

SETTINGS = LedgerSettings()


def node(name: str, cpu: str) -> NodeObserved:
    status = NodeStatus(allocatable={"cpu": cpu, "memory": "64Gi"})
    return NodeObserved(node=name, object=Node(metadata=Metadata(name=name), status=status))


def quota(name: str, min_: str, max_: str, parent: str = "", *, is_parent: bool = False) -> ObjectObserved:
    labels = {PREFIX + "is-parent": "true" if is_parent else "false"}
    if parent:
        labels[PREFIX + "parent"] = parent
    raw: dict[str, Any] = {
        "metadata": {"name": name, "namespace": "quotas", "uid": name, "labels": labels},
        "spec": {"min": {"cpu": min_}, "max": {"cpu": max_}},
    }
    return ObjectObserved(resource="elasticquotas.scheduling.sigs.k8s.io", name=f"quotas/{name}", uid=name, object=raw)


def pod(name: str, of: str, cpu: str, at: str = "", phase: str = "Pending", priority: int = 0) -> PodObserved:
    labels = {QUOTA_NAME: of} if of else None
    request = {"cpu": cpu}
    return observed(
        kept_pod(name, namespace="ns", labels=labels, requests=request, phase=phase, node_name=at, priority=priority)
    )


def labelled(event: PodObserved, **labels: str) -> PodObserved:
    body = event.object
    metadata = msgspec.structs.replace(body.metadata, labels={**(body.metadata.labels or {}), **labels})
    return msgspec.structs.replace(event, object=msgspec.structs.replace(body, metadata=metadata))


class Logs:
    """A state that folds the appended events, and decides until nothing is left to decide."""

    def __init__(self, settings: LedgerSettings = SETTINGS) -> None:
        self.state = LedgerState()
        self.settings = settings
        self.records: list[RecordedEvent] = []
        self.now_ns = SECOND

    def append(self, context: str, *events: Event, cause: Cause | None = None) -> list[Event]:
        for event in events:
            record = RecordedEvent(context, self.state.positions.get(context, 0) + 1, event, self.now_ns, cause)
            self.state.apply(record)
            self.records.append(record)
        own = caught_up(self.state, self.settings, self.now_ns)
        self.records += own
        assert [*holds(self.state.projection)] == []
        return [record.event for record in own]

    def runtime(self, name: str) -> dict[str, int]:
        projection = self.state.projection
        return projection.trees[projection.tree_of[name]].quotas[name].runtime


def two_teams() -> Logs:
    logs = Logs()
    logs.append("cluster", node("n1", "10"), quota("a", "5", "10"), quota("b", "5", "10"))
    return logs
