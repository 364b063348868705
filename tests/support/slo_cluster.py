"""A small cluster as a log: appended events, and the events of the controller in its own context."""

import json
from typing import Any

from msgspec import structs

from services.slo_controller.config.slo_configmap import ActiveConfig
from services.slo_controller.decide import decide_config, decide_nodes, nodes_with_expired_reports
from services.slo_controller.overcommit.cap_and_freeze_without_reports import decide_freeze
from services.slo_controller.settings import SloSettings
from services.slo_controller.state.slo_state import SloState
from shared.admission.slo_config.document_validation import COLOCATION
from shared.events import Event, RecordedEvent
from shared.events.cluster import (
    NodeObserved,
    ObjectObserved,
    PodDeleted,
)
from shared.events.metrics import ClassReported, NodeReported, PodReported, Usage
from shared.events.slo import NodeOvercommitted
from shared.kube.instants import SECOND, instant_ns, instant_text
from shared.kube.meta import Metadata
from shared.kube.node import Node, NodeStatus
from tests.support.pods import kept_pod, observed

BEGAN = instant_ns("2026-05-01T08:00:00Z")
G = 10**9
GI = 1 << 30
ON = {"enable": True, "cpuReclaimThresholdPercent": 65, "memoryReclaimThresholdPercent": 65}


class Cluster:
    """A log for each context; instants are seconds after BEGAN."""

    def __init__(self, **settings: Any) -> None:
        self.state = SloState()
        self.settings = SloSettings(**settings)
        self.records: list[RecordedEvent] = []

    def append(self, context: str, event: Event, at_s: float = 0) -> None:
        """Appends an event and folds it."""
        seq = self.state.positions.get(context, 0) + 1
        record = RecordedEvent(context=context, seq=seq, event=event, at_ns=BEGAN + int(at_s * SECOND))
        self.records.append(record)
        self.state.apply(record)

    def configure(self, document: dict[str, Any] | None = None, **keys: Any) -> None:
        """Stores the ConfigMap."""
        data = {COLOCATION: json.dumps(ON if document is None else document)}
        data |= {key.replace("_", "-"): json.dumps(content) for key, content in keys.items()}
        body = {"metadata": {"name": "slo-controller-config", "namespace": "koordinator-system"}, "data": data}
        name = "koordinator-system/slo-controller-config"
        self.append("cluster", ObjectObserved(resource="configmaps", name=name, uid="c", object=body))

    def node(
        self, name: str = "n", *, cpu: str = "100", memory: str = "120G",
        annotations: dict[str, str] | None = None, labels: dict[str, str] | None = None,
    ) -> None:  # fmt: skip
        """Observes a node."""
        amounts = {"cpu": cpu, "memory": memory}
        node = Node(
            metadata=Metadata(name=name, uid=f"uid-{name}", labels=labels, annotations=annotations),
            status=NodeStatus(capacity=amounts, allocatable=amounts),
        )
        self.append("cluster", NodeObserved(node=name, object=node))

    def pod(
        self, name: str, *, cpu: str = "4", memory: str = "8G", class_: str = "koord-prod", qos: str = "LS",
        at_s: float = 0, phase: str = "Running", node: str = "n",
        more: dict[str, str] | None = None,
    ) -> None:  # fmt: skip
        """Observes a pod that started at an instant."""
        labels = {"koordinator.sh/priority-class": class_, "koordinator.sh/qosClass": qos}
        pod = kept_pod(
            name, uid=f"uid-{name}", labels=labels, requests={"cpu": cpu, "memory": memory} | (more or {}), phase=phase,
            started=instant_text(BEGAN + int(at_s * SECOND)), node_name=node,
        )  # fmt: skip
        self.append("cluster", observed(pod), at_s)

    def no_pod(self, name: str, at_s: float) -> None:
        """Deletes a pod."""
        self.append("cluster", PodDeleted(pod=f"d/{name}", pod_uid=f"uid-{name}"), at_s)

    def report(
        self, at_s: float, pods: dict[str, tuple[int, int]], *, node: str = "n", system: tuple[int, int] = (0, 0),
        class_: str = "koord-prod", status_desired: bool = False,
    ) -> None:  # fmt: skip
        """Reports the usage of pods: name -> (milli-cores, bytes)."""
        used = Usage(
            sum(cpu for cpu, _ in pods.values()) + system[0], sum(size for _, size in pods.values()) + system[1]
        )
        listed = tuple(PodReported(f"d/{name}", *size) for name, size in sorted(pods.items()))
        report = NodeReported(
            node=node, at_ns=BEGAN + int(at_s * SECOND), interval_s=60, aggregate_s=300, usage=used,
            system=Usage(*system), pods=(ClassReported(class_, "LS", listed),), status_desired=status_desired,
        )  # fmt: skip
        self.append("metrics-0", report, at_s)

    def decide(self, at_s: float) -> list[Event]:
        """Decides once, as the controller does. Returns the appended events."""
        now_ns = BEGAN + int(at_s * SECOND)
        appended: list[Event] = []
        for draft in decide_config(self.state):
            appended.append(draft.event)
            self._append(draft.event, at_s, is_first=len(appended) == 1)
        config = ActiveConfig(self.state.texts)
        for draft in decide_freeze(self.state, config, self.settings, now_ns):
            appended.append(draft.event)
            self._append(draft.event, at_s, is_first=len(appended) == 1)
        names = [
            *self.state.changed,
            *(n for n in nodes_with_expired_reports(self.state, config, now_ns) if n not in self.state.changed),
        ]
        self.state.changed.clear()
        for draft in decide_nodes(self.state, config, names, self.settings, now_ns):
            appended.append(draft.event)
            self._append(draft.event, at_s, is_first=len(appended) == 1)
        return appended

    def _append(self, event: Event, at_s: float, *, is_first: bool) -> None:
        """Appends as the controller does: the first event has the positions that were seen."""
        self.append("slo", structs.replace(event, seen=dict(self.state.positions)) if is_first else event, at_s)

    def decided(self, at_s: float, name: str = "n") -> NodeOvercommitted | None:
        """Decides, and returns the decision about a node; None without one."""
        found = [event for event in self.decide(at_s) if isinstance(event, NodeOvercommitted) and event.node == name]
        return found[-1] if found else None

    def batch_cpu(self, name: str = "n") -> int | None:
        """Returns batch-cpu of the newest decision."""
        decided = self.state.decided.get(name)
        return decided.batch_cpu.amount if decided and decided.batch_cpu else None


def running() -> Cluster:
    """Returns a cluster of one node with a prod pod that uses 33 cores and 33 GB, and 7 cores and 12 GB outside of
    pods: BU1 and MU1 of the spec."""
    cluster = Cluster()
    cluster.configure()
    cluster.node()
    cluster.pod("web", cpu="40", memory="60G")
    cluster.report(30, {"web": (33_000, 33 * G)}, system=(7_000, 12 * G))
    return cluster
