"""The agent: collects usage each second, reports at the end of each interval, and reports actions at once."""

import asyncio
import logging
import os
import time
from collections.abc import Callable, Iterator, Mapping
from hashlib import blake2b
from typing import NamedTuple

from services.node_agent.collectors.interference_gauges import Gauge
from services.node_agent.collectors.usage_collector import Collector
from services.node_agent.collectors.usage_sample_types import MICRO, SECOND_NS, Usage, UsageSnapshot
from services.node_agent.prediction.predict_server import PredictServer
from services.node_agent.prometheus import koordlet_series
from services.node_agent.prometheus.durations import Histogram
from services.node_agent.qos_manager.qos_manager import EnforcementStatus, QosManager
from services.node_agent.report_builder import NO_FORECASTS, ReportBuilder, Sender
from services.node_agent.settings import AgentSettings
from services.node_agent.states_informer.node_slo import NodeSloInformer
from services.node_agent.transport.outbox import Message, Outbox
from shared.agents import actions, report
from shared.agents.actions import ActionReport, AnyAction, PodsRequested
from shared.agents.report import Report
from shared.agents.subjects import ACTION, REPORT
from shared.errors import KoordError

log = logging.getLogger(__name__)

PODS_REQUEST_INTERVAL_S = 60.0
"""Seconds between requests for the pods of the node; action ingest then publishes each change."""
FIRST_PODS_REQUEST_INTERVAL_S = 5.0
"""The same before the first response: a broker drops a request that arrives before ingest has subscribed."""


class Figures(NamedTuple):
    """The agent's own figures. None: not measured yet, or not on this node.

    Attributes:
        started_s: start of the agent, seconds since the epoch.
        usage: the node's newest sample.
        cycle_s: seconds spent in collection cycles, added up.
        backlog, backlog_bytes: messages in memory that are not accepted yet.
        kept: reports on disk, and bytes of their files.
        slo: (epoch, seq) of the NodeSLO in force.
        enforcement: counts of the QoS manager; None for an agent that only reports.
        gauges: all other measurements.
        histograms: durations.
    """

    node: str
    started_s: float
    usage: Usage | None
    pods: int
    cycles: int
    cycle_s: float
    reports: int
    sent: int
    refused: int
    dropped: int
    backlog: int
    backlog_bytes: int
    kept: tuple[int, int]
    slo: tuple[int, int] | None
    slo_refused: int
    enforcement: EnforcementStatus | None = None
    gauges: tuple[Gauge, ...] = ()
    histograms: tuple[Histogram, ...] = ()


class Agent:
    """One node's agent, without its connection.

    Attributes:
        sender: the sender in all messages of this run.
        measured: set once a cycle has sampled the node.
        slo_informer: the NodeSLO in force.
        qos_manager: runs the strategies after each cycle; None: this agent only reports.
        predictor: trains on each cycle; None: nothing is predicted.
        more_gauges: of parts that run beside the cycle.
        on_action: called with each action.
        on_report: called with each report.
    """

    def __init__(
        self, settings: AgentSettings, collector: Collector, outbox: Outbox, slo_informer: NodeSloInformer
    ) -> None:
        self.measured = asyncio.Event()
        self.slo_informer = slo_informer
        self.qos_manager: QosManager | None = None
        self.predictor: PredictServer | None = None
        self.more_gauges: list[Callable[[], Iterator[Gauge]]] = []
        self.on_action: Callable[[AnyAction], None] = lambda _: None
        self.on_report: Callable[[Report], None] = lambda _: None
        self._pods_requested_s = -PODS_REQUEST_INTERVAL_S
        self._failed: set[str] = set()
        self._settings = settings
        self._collector = collector
        self._outbox = outbox
        self.sender = Sender(settings.node, os.urandom(8).hex())
        self._started_s = time.time()
        self._usage: Usage | None = None
        self._applications: Mapping[str, Usage] = {}
        self._cycles = 0
        self._cycle_ns = 0
        self._reports = 0
        self._actions = 0

    async def run(self) -> None:
        """Measures and reports until cancelled; then reports what was measured since the last report."""
        interval_s = self._settings.collect_interval_s
        begun_s = time.monotonic()
        due_s = begun_s + min(self._settings.first_report_s, self._settings.report_interval_s)
        snapshot, ticks = self._collect(), 0
        builder = ReportBuilder(snapshot.at_ns)
        try:
            while True:
                # Missed cycles are not made up for: a machine that was held up must not get more work.
                ticks = max(ticks + 1, int((time.monotonic() - begun_s) / interval_s))
                await asyncio.sleep(begun_s + ticks * interval_s - time.monotonic())
                snapshot = self._collect()
                builder.add(snapshot)
                if snapshot.at_ns >= int(due_s * SECOND_NS) - SECOND_NS // 100:
                    builder = self._report(builder, snapshot.at_ns)
                    due_s = self._next_due(time.monotonic())
        finally:
            if snapshot.at_ns > builder.begin_ns:
                self._report(builder, snapshot.at_ns)

    def report_action(self, action: AnyAction) -> None:
        """Queues an action, ahead of all reports."""
        self._actions += 1
        self.on_action(action)
        action_report = ActionReport(self.sender.node, self.sender.boot, self._actions, time.time_ns(), action)
        self._outbox.put(Message(ACTION, self._actions, actions.encode(action_report)))

    def figures(self) -> Figures:
        """Returns the agent's own figures."""
        slo = self.slo_informer.in_force
        return Figures(
            node=self._settings.node,
            started_s=self._started_s,
            usage=self._usage,
            pods=self._collector.pods,
            cycles=self._cycles,
            cycle_s=self._cycle_ns / SECOND_NS,
            reports=self._reports,
            sent=self._outbox.sent,
            refused=self._outbox.refused,
            dropped=self._outbox.dropped + self._outbox.dropped_from_disk,
            backlog=len(self._outbox),
            backlog_bytes=self._outbox.waiting_bytes,
            kept=self._outbox.kept,
            slo=slo.position if slo else None,
            slo_refused=self.slo_informer.refused,
            enforcement=self.qos_manager.enforcement if self.qos_manager is not None else None,
            histograms=tuple(self.qos_manager.histograms()) if self.qos_manager is not None else (),
            gauges=(
                *self._gauges(),
                *(self.qos_manager.gauges() if self.qos_manager is not None else ()),
                *(gauge for gauges in self.more_gauges for gauge in gauges()),
            ),
        )

    def _gauges(self) -> Iterator[Gauge]:
        """Yields gauges of host applications and of predictions."""
        named = {each.name: each for each in self.slo_informer.applications}
        for name, usage in self._applications.items():
            if (application := named.get(name)) is None:
                continue
            for resource, scale, size in (("cpu", MICRO, usage.cpu), ("memory", 1, usage.reported)):
                if size is not None:
                    labels = {
                        "host_application_name": name,
                        "resource": resource,
                        "priority_class": application.priority,
                        "qos": application.qos,
                    }
                    yield Gauge("koordlet_host_application_resource_usage", labels, size / scale)
        forecasts = self.predictor.forecasts if self.predictor is not None else NO_FORECASTS
        for name, forecast in (("reclaimable", forecasts.reclaimable), ("peak", forecasts.peak)):
            amounts = (forecast.cpu_milli, forecast.memory) if forecast is not None else (None, None)
            for (resource, unit, scale), size in zip(
                (("cpu", "core", 1000), ("memory", "byte", 1)), amounts, strict=True
            ):
                if size is not None:
                    labels = {"predictor": "minPredictor", "resource": resource, "unit": unit}
                    yield Gauge(f"koordlet_node_predicted_resource_{name}", labels, size / scale)
        if self.predictor is not None:
            yield from koordlet_series.prod_reclaimable(forecasts.reclaimable)

    def _collect(self) -> UsageSnapshot:
        slo = self.slo_informer.in_force
        snapshot = self._collector.collect(self.slo_informer.applications, "" if slo is None else slo.memory_policy)
        self._applications = snapshot.applications
        if self.predictor is not None:
            self._predict(self.predictor, snapshot)
        if self.qos_manager is not None:
            self._run_strategies(self.qos_manager, snapshot)
        self._cycle_ns += time.monotonic_ns() - snapshot.at_ns
        self._cycles += 1
        if snapshot.node is not None:
            self._usage = snapshot.node
            self.measured.set()
        return snapshot

    def _run_strategies(self, qos_manager: QosManager, snapshot: UsageSnapshot) -> None:
        """Runs the strategies.

        One that fails over an invalid object is logged once and tried again in the next cycle.
        """
        now_s = time.monotonic()
        interval_s = FIRST_PODS_REQUEST_INTERVAL_S if qos_manager.enforcement.pods is None else PODS_REQUEST_INTERVAL_S
        if now_s - self._pods_requested_s >= interval_s and not self._outbox.actions:
            self._pods_requested_s = now_s
            self.report_action(PodsRequested())
        collector = self._collector
        try:
            qos_manager.run_cycle(snapshot, collector.hierarchy, collector.kube, collector.folders)
        except KoordError as error:
            self._log_once("the strategies stop for this cycle", error)

    def _predict(self, predictor: PredictServer, snapshot: UsageSnapshot) -> None:
        """Trains on a cycle's usage. An invalid object ends this training; the next minute is tried again."""
        try:
            predictor.run_cycle(snapshot)
        except KoordError as error:
            self._log_once("nothing is predicted for this minute", error)

    def _log_once(self, text: str, error: KoordError) -> None:
        """Logs an error unless its text was logged before."""
        if str(error) not in self._failed:
            self._failed.add(str(error))
            log.error(text, extra={"why": str(error)})

    def _report(self, builder: ReportBuilder, end_ns: int) -> ReportBuilder:
        """Queues the interval's report; returns the builder of the next interval."""
        if not builder.empty:
            self._reports += 1
            # Cycles run by the monotonic clock, which does not jump; only the end is converted to wall time.
            at_ns = time.time_ns() - (time.monotonic_ns() - end_ns)
            forecasts = self.predictor.forecasts if self.predictor is not None else NO_FORECASTS
            made = builder.build(self.sender, self._reports, end_ns, at_ns, self.slo_informer.applications, forecasts)
            self.on_report(made)
            self._outbox.put(Message(REPORT, made.seq, report.encode(made)))
        return ReportBuilder(end_ns)

    def _next_due(self, now_s: float) -> float:
        """Returns the time of the next report: at this node's own offset in every interval.

        The offset is a hash of the node's name, so a fleet's reports are spread evenly.
        """
        interval_s = self._settings.report_interval_s
        place = int.from_bytes(blake2b(self._settings.node.encode(), digest_size=4).digest(), "big") / 2**32
        until_s = (place * interval_s - time.time()) % interval_s
        return now_s + (until_s if until_s > interval_s / 4 else until_s + interval_s)
