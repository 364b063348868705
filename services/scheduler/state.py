"""What the scheduler knows: a fold over `cluster` and its own `scheduling`, kept as facts.

The fold only notes what each context has said; arrays over nodes, queues and ledgers are functions of it and live in
`index.py`, brought up to date when a decision needs them. That keeps `apply` under two microseconds, and a history in which a
pod changes five times is read into the arrays once.

Source: architecture.md, "The core of a service".
"""

from collections.abc import Callable
from typing import Any, ClassVar, Final

from services.scheduler.ask import PodAsk, allotments, ask_key, common_part
from services.scheduler.change import Change
from services.scheduler.facts import MetricFacts, NodeFacts, Touched
from services.scheduler.pods import PluginReason, PodFacts, started_ns, true_since_ns
from services.scheduler.questions import QUESTIONS, Answered, digest_of, forget_old
from services.scheduler.quotas.view import FOLDED as QUOTA_FOLDED
from services.scheduler.quotas.view import QuotaView
from services.scheduler.snapshot import encode, restore
from services.scheduler.storage import VOLUMES
from services.scheduler.surroundings import FOLLOWED, NODE_TOPOLOGIES
from shared.events import Event, Recorded
from shared.events.cluster import (
    BindFailed,
    BindRejected,
    BindWithheld,
    EvictionFailed,
    EvictionRefused,
    Listed,
    MissingPermission,
    NodeDeleted,
    NodeMetricDeleted,
    NodeMetricObserved,
    NodeObserved,
    ObjectDeleted,
    ObjectObserved,
    PodDeleted,
    PodObserved,
)
from shared.events.intents import EvictionAsked, FieldsDecided
from shared.events.log import ConfigRefused, ConfigTaken, WriterStarted
from shared.events.metrics import NodeForgotten, NodeReported
from shared.events.scheduling import (
    ClassJudged,
    PlacementCompared,
    PodNominated,
    PodPlaced,
    PodUnschedulable,
    RoundDecided,
)
from shared.kube.elastic_quota import RESOURCES as QUOTAS
from shared.kube.pod import Pod

CONFIG_MAP = "koordinator-system/koord-scheduler-config"
"""The ConfigMap that configures the scheduler when no file does."""

CONFIG_KEY = "koord-scheduler-config"
"""Its data key; a ConfigMap with one key only may call it as it likes."""

FOLDED: Final[dict[str, tuple[type[Event], ...]]] = {
    "cluster": (
        NodeObserved, NodeDeleted, PodObserved, PodDeleted, NodeMetricObserved, NodeMetricDeleted, ObjectObserved,
        ObjectDeleted, BindRejected, BindFailed, BindWithheld, MissingPermission, EvictionRefused, EvictionFailed, WriterStarted, Listed,
    ),
    "scheduling": (WriterStarted, RoundDecided, PodPlaced, PodUnschedulable, FieldsDecided, PodNominated, EvictionAsked, PlacementCompared, ConfigTaken, ConfigRefused),
    "quota": QUOTA_FOLDED,
    "metrics-*": (NodeReported, NodeForgotten),
}  # fmt: skip
"""Context -> event types folded; the others pass."""

_ENDED = frozenset(("Succeeded", "Failed"))
_MAX_UNREAD = 4096


class ClusterView:
    """What the scheduler knows of the cluster and of its own decisions.

    Attributes:
        pods: uid -> facts.
        nodes: name -> facts; present exactly while the node is observed.
        metrics: node name -> its NodeMetric object.
        reports: node name -> context of `metrics-*` -> the newest report that it holds.
        objects: resource -> key -> the object, of what plugins read beyond nodes and pods (`surroundings.FOLLOWED`).
        questions: ScheduleExplanation objects by `namespace/name`; answered: what we last said to them.
        changed: per class of change the `cluster` seq of the last one that was of no node in particular.
        chosen: volume -> claim that a placement of ours chose it for; what is written in the volume itself outranks it.
        released_seq: `cluster` seq of the last time a placement may have given up its room, on whichever node.
        gateway_since: `cluster` seq at which the gateway last started.
        listed_seq: `cluster` seq at which the gateway last had everything listed; what it said before may be incomplete.
        config_map: text of CONFIG_MAP, None while there is none.
        clock_ns: when our own log last began something, by the clock of whoever wrote it.
        round, round_saw, round_ns: the last round of our log: its number, the `cluster` seq it saw, its `now_ns`.
        config_source, config_text, config_digest: the configuration in force, empty before the first; config_seq: when (`scheduling`
            seq) it came into force.
        refused_digest: digest of the last configuration that was refused, empty when one was taken since.
        asks: key -> class of equal pods.
        quota: what the quota ledger says, and what it will have to.
        touched: what an index has yet to look at; None while there is no index.
    """

    SCHEMA: ClassVar[int] = 9

    def __init__(self) -> None:
        self.positions: dict[str, int] = {}
        self.pods: dict[str, PodFacts] = {}
        self.nodes: dict[str, NodeFacts] = {}
        self.metrics: dict[str, MetricFacts] = {}
        self.reports: dict[str, dict[str, NodeReported]] = {}
        self.objects: dict[str, dict[str, dict[str, Any]]] = {}
        self.questions: dict[str, dict[str, Any]] = {}
        self.answered: dict[str, Answered] = {}
        self.changed: list[int] = [0] * len(Change)
        self.chosen: dict[str, str] = {}
        self.released_seq = 0
        self.gateway_since = 0
        self.listed_seq = 0
        self.config_map: str | None = None
        self.clock_ns = 0
        self.round = 0
        self.round_saw = 0
        self.round_ns = 0
        self.config_source = ""
        self.config_text = ""
        self.config_digest = ""
        self.config_seq = 0
        self.refused_digest = ""
        self.asks: dict[bytes, PodAsk] = {}
        self.quota = QuotaView()
        self.touched: Touched | None = None
        self._unread: list[PodFacts] = []

    def apply(self, record: Recorded) -> None:
        """Fold one event. Types that are not in FOLDED move the position only."""
        event = record.event
        fold = self._folds.get(type(event))
        if record.context == "quota":
            self.quota.apply(record)
        elif fold is not None:
            fold(self, record, event)
        self.positions[record.context] = record.seq

    # cluster

    def _node_observed(self, record: Recorded, event: NodeObserved) -> None:
        seq, node, facts = record.seq, event.object, self.nodes.get(event.node)
        if facts is None:
            changed = [0] * len(Change)
            changed[Change.NODE_ADDED] = seq
            self.nodes[event.node] = NodeFacts(node, changed)
        else:
            before, changed = facts.node, facts.changed
            if before.status.allocatable != node.status.allocatable:
                changed[Change.ALLOCATABLE] = seq
            if before.spec != node.spec:
                changed[Change.TAINTS] = seq
            if before.metadata.labels != node.metadata.labels:
                changed[Change.LABELS] = seq
            if before.metadata.annotations != node.metadata.annotations:
                changed[Change.ANNOTATIONS] = seq
            facts.node = node
        if self.touched is not None:
            self.touched.nodes[event.node] = None

    def _node_deleted(self, _: Recorded, event: NodeDeleted) -> None:
        self.nodes.pop(event.node, None)
        if self.touched is not None:
            self.touched.nodes[event.node] = None

    def _pod_observed(self, record: Recorded, event: PodObserved) -> None:
        uid, pod = event.pod_uid, event.object
        facts = self.pods.get(uid)
        if facts is None:
            facts = self.pods[uid] = PodFacts(uid)
        spec = pod.spec
        node = spec.node_name
        ended = pod.status.phase in _ENDED
        if facts.since == 0:
            facts.since = record.seq
            facts.name = event.pod
        elif node and facts.node == node:
            if (ended and not facts.ended) or self._asks_less(facts, pod):
                self._changed(node, Change.POD_RELEASED, record.seq)
            if self._is_other(facts, pod):
                self._changed(node, Change.POD_CHANGED, record.seq)
        elif ended:
            self.released_seq = record.seq
        elif not node and self._asks_otherwise(facts, pod):
            facts.changed_seq = record.seq
        if facts.node != node:
            if node:
                self._changed(node, Change.POD_ADDED, record.seq)
            facts.node = node
            facts.node_since_ns = record.at_ns
        facts.ended = ended
        facts.deleting = pod.metadata.deletion_timestamp is not None
        if facts.observed is None:
            self._unread.append(facts)
            if len(self._unread) >= _MAX_UNREAD:
                facts.observed = pod
                self.read()
        facts.observed = pod
        if self.touched is not None:
            self.touched.pods[uid] = None

    def _pod_deleted(self, record: Recorded, event: PodDeleted) -> None:
        facts = self.pods.pop(event.pod_uid, None)
        if facts is None:
            return
        if not facts.node:
            self.released_seq = record.seq
        elif not facts.ended:
            self._changed(facts.node, Change.POD_RELEASED, record.seq)
        facts.observed = None
        if facts.ask is not None:
            self._forget(facts.ask)
        if self.touched is not None:
            self.touched.pods[event.pod_uid] = None

    def _metric_observed(self, record: Recorded, event: NodeMetricObserved) -> None:
        before, updated = self.metrics.get(event.node), event.object.status.update_time
        self.metrics[event.node] = MetricFacts(event.object, updated or (before.updated if before else ""))
        self._changed(event.node, Change.METRIC, record.seq)
        if self.touched is not None:
            self.touched.metrics[event.node] = None

    def _metric_deleted(self, record: Recorded, event: NodeMetricDeleted) -> None:
        self.metrics.pop(event.node, None)
        self._changed(event.node, Change.METRIC, record.seq)
        if self.touched is not None:
            self.touched.metrics[event.node] = None

    def _placement_refused(self, record: Recorded, event: BindRejected | BindFailed | BindWithheld) -> None:
        self._refused(record, event.pod_uid, withheld=isinstance(event, BindWithheld))

    def _permission_missing(self, record: Recorded, event: MissingPermission) -> None:
        if event.pod_uid:
            self._refused(record, event.pod_uid, withheld=False)

    def _refused(self, record: Recorded, uid: str, *, withheld: bool) -> None:
        self.released_seq = record.seq
        facts = self.pods.get(uid)
        if facts is None or record.cause is None or record.cause.context != "scheduling":
            return
        facts.refused_seq = max(facts.refused_seq, record.cause.seq)
        facts.refusals += 1
        if withheld:
            facts.withheld_seq = record.seq
        if self.touched is not None:
            self.touched.pods[uid] = None

    def _object_observed(self, record: Recorded, event: ObjectObserved) -> None:
        if event.resource in FOLLOWED:
            self.objects.setdefault(event.resource, {})[event.name] = event.object
            self._changed_around(record, event)
        elif event.resource in QUOTAS:
            self.quota.observe(f"{event.resource}/{event.name}", event.object)
        elif event.resource == QUESTIONS:
            self.questions[event.name] = {**event.object, "status": None}  # the answer is ours, and known
        elif event.resource == "configmaps" and event.name == CONFIG_MAP:
            data = event.object.get("data") or {}
            self.config_map = (
                data.get(CONFIG_KEY) if CONFIG_KEY in data or len(data) != 1 else next(iter(data.values()))
            )

    def _object_deleted(self, record: Recorded, event: ObjectDeleted) -> None:
        if event.resource in FOLLOWED:
            self.objects.get(event.resource, {}).pop(event.name, None)
            self._changed_around(record, event)
        elif event.resource in QUOTAS:
            self.quota.lose(f"{event.resource}/{event.name}")
        elif event.resource == QUESTIONS:
            self.questions.pop(event.name, None)
        elif event.resource == "configmaps" and event.name == CONFIG_MAP:
            self.config_map = None

    def _writer_started(self, record: Recorded, _: WriterStarted) -> None:
        if record.context != "cluster":
            self._hear_clock(record.at_ns)
            return
        self.gateway_since = record.seq
        if self.touched is not None:
            self.touched.pods.update((uid, None) for uid, facts in self.pods.items() if facts.withheld_seq)

    def _listed(self, record: Recorded, _: Listed) -> None:
        self.listed_seq = record.seq

    # metrics-*

    def _node_reported(self, record: Recorded, event: NodeReported) -> None:
        reports = self.reports.setdefault(event.node, {})
        before = reports.get(record.context)
        if before is None or before.at_ns <= event.at_ns:
            reports[record.context] = event
            if self.touched is not None:
                self.touched.metrics[event.node] = None

    def _node_forgotten(self, record: Recorded, event: NodeForgotten) -> None:
        reports = self.reports.get(event.node, {})
        before = reports.get(record.context)
        if before is None or before.at_ns > event.at_ns:
            return
        del reports[record.context]
        if not reports:
            del self.reports[event.node]
        if self.touched is not None:
            self.touched.metrics[event.node] = None

    # scheduling

    def _round_decided(self, record: Recorded, event: RoundDecided) -> None:
        self._hear_clock(record.at_ns)
        self.round = event.round
        self.round_saw = (event.seen or {}).get("cluster", 0)
        self.round_ns = event.now_ns or 0
        saw_quota = max((event.seen or {}).get("quota", 0), event.charged_at)
        reasons: dict[int, tuple[PluginReason, ...]] = {}
        for outcome in event.pods:
            if outcome.node or (facts := self._seen_by_round(outcome.pod_uid)) is None:
                continue
            if outcome.judged not in reasons:
                reasons[outcome.judged] = _reasons(event.classes[outcome.judged])
            facts.attempts += 1
            facts.tried_ns = self.round_ns
            facts.tried_seq = record.seq
            facts.saw = self.round_saw
            facts.saw_quota = saw_quota
            facts.reasons = reasons[outcome.judged]
            if self.touched is not None:
                self.touched.pods[facts.uid] = None

    def _pod_placed(self, record: Recorded, event: PodPlaced) -> None:
        facts = self._seen_by_round(event.pod_uid)
        if facts is None:
            return
        facts.placed_node = event.node
        facts.placed_seq = record.seq
        facts.placed_ns = self.round_ns
        facts.placed_allotted = allotments(event.annotations)
        facts.attempts = 0
        facts.nominated = ""
        if self.touched is not None:
            self.touched.pods[event.pod_uid] = None

    def _pod_nominated(self, _: Recorded, event: PodNominated) -> None:
        facts = self._seen_by_round(event.pod_uid)
        if facts is not None:
            facts.nominated = event.node
            if self.touched is not None:
                self.touched.pods[event.pod_uid] = None

    def _eviction_asked(self, record: Recorded, event: EvictionAsked) -> None:
        facts = self._seen_by_round(event.pod_uid)
        if facts is not None:
            facts.asked_seq = record.seq

    def _eviction_refused(self, record: Recorded, event: EvictionRefused | EvictionFailed) -> None:
        facts = self.pods.get(event.pod_uid)
        if facts is not None and record.cause is not None and record.cause.context == "scheduling":
            facts.stayed_seq = max(facts.stayed_seq, record.cause.seq)
            facts.stayed_at = record.seq
            if self.touched is not None:
                self.touched.pods[event.pod_uid] = None

    def _fields_decided(self, record: Recorded, event: FieldsDecided) -> None:
        if event.resource == QUESTIONS:
            forget_old(self.answered, record.at_ns)
            self.answered[event.name] = Answered(event.uid, record.at_ns, digest_of(event.patch["status"]))
        if event.resource == VOLUMES:
            reference = event.patch["spec"]["claimRef"]
            self.chosen[event.name] = f"{reference['namespace']}/{reference['name']}"

    def _pod_unschedulable(self, _: Recorded, event: PodUnschedulable) -> None:
        facts = self._seen_by_round(event.pod_uid)
        if facts is not None:
            facts.told = event.code

    def _placement_compared(self, record: Recorded, event: PlacementCompared) -> None:
        binding = record.cause.seq if record.cause else 0
        facts = self.pods.get(event.pod_uid)
        if facts is None:
            if self.positions.get("cluster", 0) >= binding:
                return  # it was bound before, and is gone
            facts = self.pods[event.pod_uid] = PodFacts(event.pod_uid)
        facts.compared = True

    def _config_taken(self, record: Recorded, event: ConfigTaken) -> None:
        self.config_seq = record.seq
        self.config_source, self.config_text, self.config_digest = event.source, event.text, event.digest
        self.refused_digest = ""

    def _config_refused(self, _: Recorded, event: ConfigRefused) -> None:
        self.refused_digest = event.digest

    # what the folds share

    def _seen_by_round(self, uid: str) -> PodFacts | None:
        """The pod that the last round meant, or None when it is gone.

        The round saw the pod: absent although we have read as far means gone for good, and one that was first observed
        later is another life of the same uid.
        """
        facts = self.pods.get(uid)
        if facts is None:
            if self.positions.get("cluster", 0) >= self.round_saw:
                return None
            facts = self.pods[uid] = PodFacts(uid)
        elif facts.since > self.round_saw:
            return None
        return facts

    def _hear_clock(self, at_ns: int) -> None:
        """Our own log goes on at an instant. A clock behind the last one (it was set; another replica leads) has no instants ahead of it:
        who was tried by the other clock would wait for as long as the two differ.
        """
        if at_ns < self.clock_ns:
            for facts in self.pods.values():
                if max(facts.tried_ns, facts.placed_ns) > at_ns:
                    facts.tried_ns, facts.placed_ns = min(facts.tried_ns, at_ns), min(facts.placed_ns, at_ns)
                    if self.touched is not None:
                        self.touched.pods[facts.uid] = None
        self.clock_ns = at_ns

    def _changed(self, node: str, change: Change, seq: int) -> None:
        facts = self.nodes.get(node)
        if facts is not None:
            facts.changed[change] = seq
            if self.touched is not None:
                self.touched.nodes.setdefault(node)

    def _changed_around(self, record: Recorded, event: ObjectObserved | ObjectDeleted) -> None:
        if event.resource == NODE_TOPOLOGIES:
            self._changed(event.name, Change.TOPOLOGY, record.seq)
        else:
            self.changed[FOLLOWED[event.resource]] = record.seq
        if self.touched is not None:
            self.touched.objects[event.resource, event.name] = None

    def _is_other(self, facts: PodFacts, pod: Pod) -> bool:
        """Whether selectors may see another pod than before."""
        if facts.deleting != (pod.metadata.deletion_timestamp is not None):
            return True
        return (_last_seen(facts).metadata.labels or None) != (pod.metadata.labels or None)

    def _asks_less(self, facts: PodFacts, pod: Pod) -> bool:
        seen = _last_seen(facts)
        before = seen.spec
        return (
            before.containers != pod.spec.containers
            or before.resources != pod.spec.resources
            or seen.status.container_statuses != pod.status.container_statuses
        )

    def _asks_otherwise(self, facts: PodFacts, pod: Pod) -> bool:
        return ask_key(_last_seen(facts)) != ask_key(pod)

    def read(self) -> None:
        """Read the newest object of every pod into its facts: its class, and since when it counts on its node."""
        for facts in self._unread:
            pod = facts.observed
            if pod is None:
                continue  # deleted meanwhile
            facts.observed = None
            facts.scheduled_ns, facts.initialized_ns = true_since_ns(pod)
            facts.started_ns = started_ns(pod)
            facts.allotted = allotments(pod.metadata.annotations)
            key = ask_key(pod)
            ask, before = self.asks.get(key), facts.ask
            if ask is None:
                ask = self.asks[key] = PodAsk(key, common_part(pod))
            if ask is not before:
                ask.pods += 1
                facts.ask = ask
                if before is not None:
                    self._forget(before)
        self._unread.clear()

    def _forget(self, ask: PodAsk) -> None:
        ask.pods -= 1
        if ask.pods == 0:
            del self.asks[ask.key]

    def encode(self) -> bytes:
        """Everything, in one canonical form."""
        return encode(self)

    def restore(self, data: bytes) -> None:
        """Take over what `encode` wrote."""
        restore(self, data)

    _folds: ClassVar[dict[type[Event], Callable[[Any, Recorded, Any], None]]] = {
        NodeObserved: _node_observed,
        NodeDeleted: _node_deleted,
        PodObserved: _pod_observed,
        PodDeleted: _pod_deleted,
        NodeMetricObserved: _metric_observed,
        NodeMetricDeleted: _metric_deleted,
        ObjectObserved: _object_observed,
        ObjectDeleted: _object_deleted,
        BindRejected: _placement_refused,
        BindFailed: _placement_refused,
        BindWithheld: _placement_refused,
        MissingPermission: _permission_missing,
        WriterStarted: _writer_started,
        Listed: _listed,
        NodeReported: _node_reported,
        NodeForgotten: _node_forgotten,
        RoundDecided: _round_decided,
        PodPlaced: _pod_placed,
        PodUnschedulable: _pod_unschedulable,
        FieldsDecided: _fields_decided,
        PodNominated: _pod_nominated,
        EvictionAsked: _eviction_asked,
        EvictionRefused: _eviction_refused,
        EvictionFailed: _eviction_refused,
        PlacementCompared: _placement_compared,
        ConfigTaken: _config_taken,
        ConfigRefused: _config_refused,
    }


def _last_seen(facts: PodFacts) -> Pod:
    if facts.observed is not None:
        return facts.observed
    assert facts.ask is not None, "observed before, so read"
    return facts.ask.pod


def _reasons(judged: ClassJudged) -> tuple[PluginReason, ...]:
    return tuple(dict.fromkeys((rejected.plugin, rejected.code) for rejected in judged.rejected))
