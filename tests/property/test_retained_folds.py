"""A fold from the oldest kept event gives every service the State that it has, with retention at work while logs grow."""

from collections.abc import Callable, Sequence
from itertools import takewhile
from random import Random
from typing import Any

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from services.audit.decide_signed_checkpoint import checkpoint_drafts
from services.audit.service import SERVICE as AUDIT
from services.gateway.effects import outcome_events as outcomes
from services.gateway.effects.intent_types import OneShot
from services.gateway.known_objects import ObservedPod
from services.gateway.service import SERVICE as GATEWAY
from services.metrics_ingest.agent_actions.node_pods_and_actions_state import ActionIngestState
from services.metrics_ingest.agent_actions.service import SERVICE as ACTIONS
from services.metrics_ingest.agent_reports.decide_reports import report_drafts
from services.metrics_ingest.agent_reports.metrics_ingest_state import ReportIngestState
from services.metrics_ingest.agent_reports.service import SERVICE as REPORTS
from services.metrics_ingest.agent_reports.settings import IngestSettings
from services.slo_controller.service import SERVICE as SLO
from services.slo_controller.state.slo_state import SloState
from shared.domain.node_metric_status import desired_status
from shared.events import Cause, Event, RecordedEvent
from shared.events.audit import CheckpointSigned
from shared.events.cluster import (
    EvictionPaused,
    EvictionsHeld,
    EvictionsReleased,
    NodeDeleted,
    NodeMetricDeleted,
    NodeMetricObserved,
)
from shared.events.intents import EvictionRequested, FieldsDesired, ObjectDesired
from shared.events.metrics import NodeReported, NodeReportsExpired
from shared.events.nodes import NodeTopologyRemoved, NodeTopologyReported, PodBurst
from shared.kube.instants import SECOND, instant_text
from shared.kube.meta import Metadata
from shared.kube.node import NodeMetric, NodeMetricStatus
from shared.runtime.service import Service
from tests.support.hypothesis_examples import examples
from tests.support.kept_log import GrowingLog
from tests.support.slo_cluster import BEGAN, Cluster

SERVICES = (GATEWAY, SLO, REPORTS, ACTIONS, AUDIT)
HOUR_NS = 3600 * SECOND
LATER_NS = BEGAN + 96 * HOUR_NS
NODES = ("n", "m")


class Histories:
    """A cluster in which objects come, change, go and come back, nodes report and fall silent, and intents end."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.cluster = Cluster()
        self.at_s = 0.0
        self.open: list[RecordedEvent] = []
        self.closed: list[RecordedEvent] = []
        self.numbers = 0
        self.running: list[str] = []
        self.reported: dict[str, float] = {}
        self.cluster.configure()

    def append(self, context: str, event: Event, cause: Cause | None = None) -> None:
        """Appends an event, now."""
        self.cluster.append(context, event, self.at_s)
        record = self.cluster.records[-1]
        if cause is not None:
            self.cluster.records[-1] = RecordedEvent(record.context, record.seq, record.event, record.at_ns, cause)

    @property
    def now_ns(self) -> int:
        """The instant of the next event."""
        return BEGAN + int(self.at_s * SECOND)

    def step(self) -> None:
        """Something happens."""
        self.at_s += self.random.randrange(1, 1200)
        before = len(self.cluster.records)
        self.random.choice(self.steps())()
        for record in self.cluster.records[before:]:
            event = record.event
            if isinstance(event, NodeReported) and event.status_desired:
                self.open.append(msgspec.structs.replace(record, event=desired_status(event)))
            elif isinstance(event, EvictionRequested | FieldsDesired | ObjectDesired):
                self.open.append(record)

    def steps(self) -> Sequence[Callable[[], None]]:
        """Returns what may happen."""
        return (self.pod, self.node, self.report, self.metric, self.action, self.decide, self.sign, self.end, self.end)

    def pod(self) -> None:
        if not self.running or self.random.random() < 0.4:
            self.numbers += 1
            self.running.append(f"p{self.numbers}")
        name = self.random.choice(self.running)
        node = NODES[int(name[1:]) % len(NODES)]
        chance = self.random.random()
        if chance < 0.2:
            self.running.remove(name)
            self.cluster.pod(name, at_s=self.at_s, phase="Succeeded", node=node)
        elif chance < 0.4:
            self.running.remove(name)
            self.cluster.no_pod(name, self.at_s)
        else:
            self.cluster.pod(name, cpu=str(self.random.randrange(1, 4)), node=node)

    def node(self) -> None:
        name = self.random.choice(NODES)
        if self.random.random() < 0.3:
            self.append("cluster", NodeDeleted(node=name, node_uid=f"uid-{name}"))
        else:
            self.cluster.node(name, cpu=str(self.random.randrange(90, 99)))

    def metric(self) -> None:
        name = self.random.choice(NODES)
        if self.random.random() < 0.3:
            self.append("cluster", NodeMetricDeleted(node=name))
        else:
            status = NodeMetricStatus(update_time=instant_text(BEGAN + int(self.at_s) * SECOND))
            self.append(
                "cluster", NodeMetricObserved(node=name, object=NodeMetric(metadata=Metadata(name=name), status=status))
            )

    def report(self) -> None:
        name = self.random.choice(NODES)
        if self.random.random() < 0.2 and name in self.reported:
            at_ns = BEGAN + int(self.reported[name] * SECOND)
            self.append("metrics-0", NodeReportsExpired(node=name, at_ns=at_ns))
            return
        self.reported[name] = self.at_s
        chance = self.random.random()
        self.cluster.report(self.at_s, {"a": (1_000, 10**9)}, node=name, status_desired=chance < 0.6)
        if chance >= 0.8:  # as earlier builds recorded a desired status
            patch: dict[str, Any] = {"status": {"updateTime": instant_text(BEGAN + int(self.at_s) * SECOND)}}
            self.append(
                "metrics-0",
                FieldsDesired(resource="nodemetrics.slo.koordinator.sh", name=name, fields="status", patch=patch),
            )

    def action(self) -> None:
        name = self.random.choice(NODES)
        self.numbers += 1
        fields: dict[str, Any] = {
            "node": name,
            "boot": str(self.numbers // 7),
            "number": self.numbers,
            "at_ns": 0,
        }
        kind = self.random.randrange(4)
        if kind == 0:
            self.append("nodes-0", NodeTopologyRemoved(node=name))
        elif kind == 1:
            self.append(
                "nodes-0",
                NodeTopologyReported(**fields, policy="", zones={}, annotations={"k": str(self.random.randrange(3))}),
            )
        elif kind == 2:
            self.append("nodes-0", EvictionRequested(pod="d/p1", pod_uid="uid-p1", reason="r"))
        else:
            self.append("nodes-0", PodBurst(**fields, pod_uid="uid-a", pod="d/a", cfs_quota_us=1))

    def settle(self, log: GrowingLog, context: str) -> None:
        """The gateway ends what was superseded, and what its writer no longer wants, long before it is dropped."""
        intents, (name, rule) = log.followers["gateway"].state.intents, log.rules[context]
        holds = rule.holds(log.followers[name].state, log.kept(context))
        by_place = {Cause(record.context, record.seq): record for record in self.open}
        newest = next(reversed(intents.one_shots), None)
        for cause in (*intents.refused, *intents.superseded, *intents.desired, *intents.applied, *intents.one_shots):
            record = by_place.get(log.origins[cause])
            is_over = (
                cause in intents.refused
                or cause in intents.superseded
                or (cause in intents.one_shots and cause != newest)
            )
            if record is not None and (is_over or (cause.context == context and not holds(log.at(cause)))):
                self.append("cluster", self._outcome(record.event), Cause(record.context, record.seq))
                self.open.remove(record)

    @staticmethod
    def _outcome(intent: Any) -> Event:
        return outcomes.rejected(intent, "x") if isinstance(intent, OneShot) else outcomes.superseded(intent)

    def decide(self) -> None:
        self.cluster.decide(self.at_s)

    def sign(self) -> None:
        self.numbers += 1
        signed = CheckpointSigned(signer="s", statement=str(self.numbers), public_key="", signature="")
        for draft in checkpoint_drafts(signed, "d/checkpoint", signed.statement):
            self.append("audit", draft.event)

    def end(self) -> None:
        """An intent ends, or a desired state is written again, or its object goes."""
        if not self.open:
            return
        record = self.random.choice(self.open)
        cause = Cause(record.context, record.seq)
        intent: Any = record.event
        if isinstance(intent, EvictionRequested):
            self.end_eviction(record, cause, intent)
            return
        ends = (outcomes.applied, outcomes.applied, outcomes.superseded, lambda one: outcomes.rejected(one, "no"))
        outcome = self.random.choice(ends)(intent)
        self.append("cluster", outcome, cause)
        if not isinstance(outcome, type(outcomes.applied(intent))):
            self.open.remove(record)

    def end_eviction(self, record: RecordedEvent, cause: Cause, intent: EvictionRequested) -> None:
        """An eviction waits for budget, or ends; at times an operator holds or releases all."""
        chance = self.random.random()
        if chance < 0.2:
            self.append("cluster", EvictionPaused(pod=intent.pod, pod_uid=intent.pod_uid, reason="node n"), cause)
            return
        if chance < 0.4:
            self.append("cluster", self.random.choice((EvictionsHeld, EvictionsReleased))(by="ops", reason="r"))
            return
        known = ObservedPod(b"", node=self.random.choice(NODES), workload="Job/j")
        evicted = outcomes.evicted(intent, known if chance < 0.8 else None)
        self.append("cluster", evicted if chance < 0.9 else outcomes.rejected(intent, "no"), cause)
        self.open.remove(record)


def forget_residue(state: Any) -> None:
    """Removes what dates changes before the oldest kept event, and pods that went lately: see docs/log.md."""
    if isinstance(state, ActionIngestState):
        state.node_views = {node: view._replace(seq=0) for node, view in state.node_views.items()}
    if isinstance(state, ReportIngestState):
        state.refused.clear()
        for uid in state.gone:
            del state.known_pods[uid]
        state.gone.clear()
    if isinstance(state, SloState):
        state.newest_report_ns = {node: at for node, at in state.newest_report_ns.items() if node in state.reports}
        state.pods.forget_old(LATER_NS)


def next_writes(state: ReportIngestState) -> list[Event]:
    """Returns the writes of every node's next report, later than any pause after a refused write.

    No refused write that `cluster` lacks is younger: its newest days are never dropped.
    """
    at_ns, settings_ = LATER_NS, IngestSettings()
    reports = [NodeReported(node=name, at_ns=at_ns, interval_s=60, aggregate_s=300) for name in sorted(state.nodes)]
    return [draft.event for report in reports for draft in report_drafts(state, report, settings_, at_ns)]


def grown(random: Random, history: Histories, services: Sequence[Service]) -> GrowingLog:
    """Returns a log that grew while its oldest partitions were dropped."""
    log = GrowingLog(services)
    added = 0
    for _ in range(120):
        history.step()
        drops = bool(log.rows) and random.random() < 0.1
        context = random.choice(sorted(log.rules.keys() & log.rows.keys())) if drops else ""
        added = log.extend(history.cluster.records, added)
        if context:
            history.settle(log, context)
            added = log.extend(history.cluster.records, added)
            before_ns = (
                max((entry.record.at_ns for entry in log.rows[context] if not entry.is_copy), default=0) - HOUR_NS
            )
            old = list(takewhile(lambda entry: entry.record.at_ns < before_ns, log.rows[context]))  # noqa: B023
            if len(old) > 1:
                log.drop(context, log.base.get(context, 0) + random.randrange(1, len(old)))
    return log


@given(seed=st.integers(0, 2**32))
@settings(max_examples=examples(60))
def test_a_fold_from_the_oldest_kept_event_is_the_live_state(seed: int) -> None:
    random = Random(seed)
    log = grown(random, Histories(random), SERVICES)
    for service in SERVICES:
        anew, live = log.folded_anew(service.name, service.new_state, random), log.followers[service.name].state
        if isinstance(live, ReportIngestState):
            assert next_writes(anew) == next_writes(live)
        for state in (anew, live):
            forget_residue(state)
        assert anew.encode() == live.encode(), service.name
