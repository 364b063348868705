"""What is known of a cluster: the fields of the fold, and what its halves share.

`observed.py` folds what was seen, `decided.py` what we said ourselves; `state.py` is both.
"""

from typing import Any

from services.scheduler.state.cluster_event import ClusterEvent
from services.scheduler.state.explanation_requests import LastAnswer
from services.scheduler.state.pod_class import PodClass, allocation_annotations, class_key, common_part
from services.scheduler.state.pod_record import PodRecord, conditions_checksum, started_ns, true_since_ns
from services.scheduler.state.quota_view import QuotaView
from services.scheduler.state.records import DirtySet, MetricRecord, NodeRecord
from shared.events.metrics import NodeReported


class StateFields:
    """What the scheduler knows of the cluster and of its own decisions.

    Attributes:
        pods: uid -> facts.
        nodes: name -> facts; present exactly while the node is observed.
        metrics: node name -> its NodeMetric object.
        reports: node name -> context of `metrics-*` -> the newest report that it holds; reported: the same, its seq there.
        objects: resource -> key -> the object, of what plugins read beyond nodes and pods (`watched_resources.WATCHED`).
        questions: ScheduleExplanation objects by `namespace/name`; answered: what we last said to them.
        changed: per class of change the `cluster` seq of the last one that was of no node in particular.
        chosen: volume -> claim that a placement of ours chose it for; what is written in the volume itself outranks it.
        released_seq: `cluster` seq of the last time a placement may have given up its room, on whichever node.
        gateway_since: `cluster` seq at which the gateway last started.
        listed_seq: `cluster` seq at which the gateway last had everything listed; what it said before may be incomplete.
        config_map: text of CONFIG_MAP, None while there is none.
        clock_ns: when our own log last began something, by the clock of whoever wrote it.
        cycle, cycle_saw, cycle_ns: the last cycle of our log: its number, the `cluster` seq it saw, its `now_ns`.
        config_source, config_text, config_digest: the configuration in force, empty before the first; config_seq: when (`scheduling`
            seq) it came into force.
        config_settings: settings of the process that came into force with it and shape decisions.
        refused_digest: digest of the last configuration that was refused, empty when one was taken since.
        pod_classes: key -> class of equal pods.
        quota: what the quota ledger says, and what it will have to.
        dirty: what an index has yet to look at; None while there is no index.
    """

    def __init__(self) -> None:
        self.positions: dict[str, int] = {}
        self.pods: dict[str, PodRecord] = {}
        self.nodes: dict[str, NodeRecord] = {}
        self.metrics: dict[str, MetricRecord] = {}
        self.reports: dict[str, dict[str, NodeReported]] = {}
        self.reported: dict[str, dict[str, int]] = {}
        self.objects: dict[str, dict[str, dict[str, Any]]] = {}
        self.questions: dict[str, dict[str, Any]] = {}
        self.answered: dict[str, LastAnswer] = {}
        self.changed: list[int] = [0] * len(ClusterEvent)
        self.chosen: dict[str, str] = {}
        self.released_seq = 0
        self.gateway_since = 0
        self.listed_seq = 0
        self.config_map: str | None = None
        self.clock_ns = 0
        self.cycle = 0
        self.cycle_saw = 0
        self.cycle_ns = 0
        self.config_source = ""
        self.config_text = ""
        self.config_digest = ""
        self.config_seq = 0
        self.config_settings: dict[str, str] = {}
        self.refused_digest = ""
        self.pod_classes: dict[bytes, PodClass] = {}
        self.quota = QuotaView()
        self.dirty: DirtySet | None = None
        self._unread: list[PodRecord] = []

    def _changed(self, node: str, change: ClusterEvent, seq: int) -> None:
        node_record = self.nodes.get(node)
        if node_record is not None:
            node_record.changed[change] = seq
            if self.dirty is not None:
                self.dirty.nodes.setdefault(node)

    def read(self) -> None:
        """Read the newest object of every pod into its facts: its class, and since when it counts on its node."""
        for pod_record in self._unread:
            pod = pod_record.observed
            if pod is None:
                continue  # deleted meanwhile
            pod_record.observed = None
            pod_record.scheduled_ns, pod_record.initialized_ns = true_since_ns(pod)
            pod_record.started_ns = started_ns(pod)
            pod_record.conditions = conditions_checksum(pod) if pod.spec.node_name else 0
            pod_record.allocation = allocation_annotations(pod.metadata.annotations)
            key = class_key(pod)
            pod_class, before = self.pod_classes.get(key), pod_record.pod_class
            if pod_class is None:
                pod_class = self.pod_classes[key] = PodClass(key, common_part(pod))
            if pod_class is not before:
                pod_class.pods += 1
                pod_record.pod_class = pod_class
                if before is not None:
                    self._forget(before)
        self._unread.clear()

    def _keep_load_class(self, pod_record: PodRecord) -> None:
        """Keeps the present class of a pod as the one that its load is estimated by."""
        self.read()
        if pod_record.pod_class is not None:
            pod_record.load_class = pod_record.pod_class
            pod_record.pod_class.pods += 1

    def _drop_load_class(self, pod_record: PodRecord) -> None:
        """Estimates the load of a pod by its class again."""
        if pod_record.load_class is not None:
            self._forget(pod_record.load_class)
            pod_record.load_class = None

    def _forget(self, pod_class: PodClass) -> None:
        pod_class.pods -= 1
        if pod_class.pods == 0:
            del self.pod_classes[pod_class.key]

    def _advance_clock(self, at_ns: int) -> None:
        """Our own log goes on at an instant. A clock behind the last one (it was set; another replica leads) has no instants ahead of it:
        who was tried by the other clock would wait for as long as the two differ.
        """
        if at_ns < self.clock_ns:
            for pod_record in self.pods.values():
                if max(pod_record.tried_ns, pod_record.placed_ns) > at_ns:
                    pod_record.tried_ns, pod_record.placed_ns = (
                        min(pod_record.tried_ns, at_ns),
                        min(pod_record.placed_ns, at_ns),
                    )
                    if self.dirty is not None:
                        self.dirty.pods[pod_record.uid] = None
        self.clock_ns = at_ns
