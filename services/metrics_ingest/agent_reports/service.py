"""The service metrics-ingest: reports in, NodeReported and NodeMetric writes out, NodeSLOs to agents.

Over NATS and MQTT.

Source: architecture.md, "Node agents".
"""

import asyncio
import contextlib
import logging

from prometheus_client import Counter, Gauge

from services.metrics_ingest.agent_reports.aggregation_policy import Policy, policy_of
from services.metrics_ingest.agent_reports.decide_history import believed, history, is_recorded
from services.metrics_ingest.agent_reports.decide_reports import (
    check_time,
    expired_reports,
    is_due,
    node_reported,
    report_drafts,
)
from services.metrics_ingest.agent_reports.metrics_ingest_state import FOLDED, ReportIngestState
from services.metrics_ingest.agent_reports.publish_node_slo_to_agents import NodeSloPublisher
from services.metrics_ingest.agent_reports.retention_carry_forward import CARRY_FORWARD
from services.metrics_ingest.agent_reports.service_manifest import MANIFEST
from services.metrics_ingest.agent_reports.settings import IngestSettings
from services.metrics_ingest.agent_reports.usage_windows import NodeWindows
from shared.agents import backlog, subjects
from shared.agents.report import BadReport, decode
from shared.events import Draft
from shared.events.intents import ObjectDesired
from shared.events.log import WriterStarted
from shared.events.metrics import NodeHistoryReported, NodeReported, NodeReportsExpired
from shared.ingest.agent_message_queue import AgentInbox, Incoming
from shared.ingest.message_loop import Batch, serve
from shared.ingest.mqtt_session import MqttSession
from shared.ingest.rejection_log import RejectionLog
from shared.kube.instants import SECOND
from shared.runtime.retention_settings import Retention
from shared.runtime.service import Runtime, Service
from shared.runtime.task_cancellation import cancel_and_wait
from shared.runtime.task_group_errors import first_error_alone

log = logging.getLogger(__name__)

POLL_INTERVAL_S = 5.0
"""Seconds between two checks for silent nodes."""

FORGET_S = 7_200
"""Seconds after its last report at which a silent node's windows are dropped."""


class Ingest:
    """One term of leadership over one shard."""

    def __init__(self, runtime: Runtime) -> None:
        environment = runtime.environment
        self._runtime = runtime
        self._settings: IngestSettings = runtime.settings
        self._windows: dict[str, NodeWindows] = {}
        self._silent: dict[str, None] = {}
        self._began_ns = runtime.now_ns()
        self._inbox = AgentInbox(subjects.REPORT, environment.shard, environment.metrics_shards)
        self._mqtt = MqttSession.of_service(runtime, self._settings.client, self._inbox)
        registry = runtime.metrics.registry
        self._rejections = RejectionLog("report", registry, runtime.rejections)
        self._pod_samples = Counter("koord_ingest_pod_samples", "Pods in accepted reports", registry=registry)
        self._unmatched = Counter(
            "koord_ingest_unmatched_reports", "Reports with usage of pods that are not known", registry=registry
        )
        self._nodes_reporting = Gauge("koord_ingest_nodes", "Nodes that report", registry=registry)
        self._nodes_silent = Gauge("koord_ingest_silent_nodes", "Nodes that have stopped reporting", registry=registry)

    @property
    def _state(self) -> ReportIngestState:
        state: ReportIngestState = self._runtime.state
        return state

    async def run(self) -> None:
        """Takes reports until the process drains."""
        parts = [NodeSloPublisher(self._runtime, self._inbox.concerns, self._mqtt).run()]
        if self._mqtt is not None:
            parts.append(self._mqtt.run())
        await self._runtime.bus.handle(subjects.every_subject(subjects.REPORT), self._inbox.receive_request)
        async with asyncio.TaskGroup() as group:
            background = [group.create_task(part) for part in parts]
            # Ends by itself, as a task that uses the writer's connection is never cancelled.
            group.create_task(self._watch())
            await serve(self._runtime, self._inbox, self._decide, self._rejections.accepted)
            await cancel_and_wait(*background)

    def _decide(self, message: Incoming, batch: Batch) -> None:
        """Decides on one report and adds its events and its receipt to the batch."""
        node, now_ns = message.node, batch.now_ns
        if backlog.is_backlog(message.data):
            self._decide_backlog(message, batch)
            return
        policy = self._policy(node)
        try:
            report = decode(message.data, node)
        except BadReport as error:
            self._rejections.add(message, error, batch)
            return
        try:
            check_time(report, policy, self._settings, now_ns)
        except BadReport as error:
            self._rejections.add(message, error, batch, report.boot, report.seq)
            return
        batch.accept(message, "report", report.boot, report.seq)
        windows = self._windows_of(node, now_ns)
        if windows.contains(report):
            return
        windows.add(report)
        self._pod_samples.inc(len(report.pods))
        if report.at_ns < windows.at_ns or not is_due(self._state, report, policy):
            windows.forget(policy)
            return
        event = node_reported(self._state, windows.measure(policy), policy)
        if event.unmatched is not None:
            self._unmatched.inc()
        batch.drafts[node] = report_drafts(self._state, event, self._settings, now_ns)

    def _decide_backlog(self, message: Incoming, batch: Batch) -> None:
        """Records reports that an agent kept while it had no connection; recent ones fill the windows, too."""
        node, policy = message.node, self._policy(message.node)
        try:
            kept, packed = backlog.decode(message.data, node)
        except BadReport as error:
            self._rejections.add(message, error, batch)
            return
        name = f"{node} {kept.boot} {kept.seq}"
        # The State has what is committed; a repeat may come within the same slice.
        if name in batch.drafts or is_recorded(self._state.history.get(node, {}), kept):
            batch.accept(message, "report", kept.boot, kept.seq)
            return
        reports, faulty = believed(packed, node, self._settings, batch.now_ns)
        for each in faulty:
            self._rejections.leave_out(message, each)
        batch.accept(message, "report", kept.boot, kept.seq)
        events = history(self._state, kept, reports, policy)
        batch.drafts[name] = [Draft(event) for event in events]
        windows = self._windows_of(node, batch.now_ns)
        for report in reports:
            if batch.now_ns - report.at_ns <= policy.longest_s * SECOND and not windows.contains(report):
                windows.add(report)
        windows.forget(policy)

    def _windows_of(self, node: str, now_ns: int) -> NodeWindows:
        """Returns the windows of a node that reports now."""
        windows = self._windows.setdefault(node, NodeWindows(node))
        windows.last_report_ns = now_ns
        return windows

    def _policy(self, node: str) -> Policy:
        return policy_of(self._state.specs.get(node), self._settings.min_interval_s)

    async def _watch(self) -> None:
        """Logs nodes that have stopped reporting, and expires those that have left the cluster."""
        while not self._runtime.draining.is_set():
            now_ns, silence_ns = self._runtime.now_ns(), self._settings.stale_after_s * SECOND
            names = dict.fromkeys((*self._state.last_recorded_ns, *self._windows))
            quiet = [
                name
                for name in names
                if now_ns - self._last_report_ns(name) > silence_ns and self._inbox.concerns(name)
            ]
            self._log_silent(quiet, now_ns)
            if drafts := expired_reports(self._state, quiet):
                await self._runtime.append(drafts, now_ns=now_ns)
            for name in quiet:
                if now_ns - self._last_report_ns(name) > FORGET_S * SECOND:
                    self._windows.pop(name, None)
            self._nodes_reporting.set(len(self._windows) - len(self._silent))
            self._nodes_silent.set(len(self._silent))
            self._runtime.counts.update(nodes=len(self._windows), silent_nodes=len(self._silent))
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(POLL_INTERVAL_S):
                    await self._runtime.draining.wait()

    def _log_silent(self, quiet: list[str], now_ns: int) -> None:
        silent = {name: None for name in quiet if name in self._state.nodes}
        for name in silent.keys() - self._silent.keys():
            seconds = (now_ns - self._last_report_ns(name)) // SECOND
            log.warning(
                "a node is silent",
                extra={"node": name, "stale_after_s": seconds, "limit_s": self._settings.stale_after_s},
            )
        for name in self._silent.keys() - silent.keys():
            log.info("a silent node reports again, or is gone", extra={"node": name})
        self._silent = silent

    def _last_report_ns(self, node: str) -> int:
        windows = self._windows.get(node)
        return windows.last_report_ns if windows else self._began_ns


RETENTION = Retention(days=0.25, gigabytes=5.0, yields=True)
"""Old reports are of no use, so `metrics-*` is trimmed by age and size, whichever nodes there are."""


async def lead(runtime: Runtime) -> None:
    """Takes reports for as long as this replica writes its shard of `metrics-*`."""
    with first_error_alone():
        await Ingest(runtime).run()


SERVICE = Service(
    manifest=MANIFEST,
    follows=FOLDED,
    emits=(WriterStarted, NodeReported, NodeHistoryReported, NodeReportsExpired, ObjectDesired),
    settings=IngestSettings,
    new_state=ReportIngestState,
    lead=lead,
    carry_forward=CARRY_FORWARD,
    retention=RETENTION,
)
