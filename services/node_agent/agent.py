"""The agent itself: a round of measuring each second, a report at the end of each interval, a deed at once."""

import asyncio
import logging
import os
import time
from collections.abc import Iterator, Mapping
from hashlib import blake2b
from typing import NamedTuple

from services.node_agent.collectors.extra_metrics import Gauge
from services.node_agent.collectors.usage_collector import Collector
from services.node_agent.collectors.usage_samples import MICRO, SECOND_NS, Round, Usage
from services.node_agent.prediction.peak_predictor import Predictor
from services.node_agent.qos_manager.qos_manager import Acted, Governor
from services.node_agent.report_builder import NO_FORECASTS, Interval, Sender
from services.node_agent.settings import AgentSettings
from services.node_agent.states_informer.node_slo import SloKeeper
from services.node_agent.transport.outbox import Message, Outbox
from shared.agents import actions, report
from shared.agents.actions import ActionReport, AnyDeed, PodsRequested
from shared.agents.subjects import DEED, REPORT
from shared.errors import KoordError

log = logging.getLogger(__name__)

WANTS_PODS_INTERVAL_S = 60.0
"""How often deeds ingest is told that this agent wants its pods; it tells them on from then on."""
ASKS_FOR_PODS_INTERVAL_S = 5.0
"""The same while it knows of none: what a broker took before ingest was there is lost."""


class Figures(NamedTuple):
    """What the agent shows of itself. None: not measured yet, or not on this node.

    Attributes:
        started_s: when it began, seconds since the epoch.
        usage: the node's newest sample.
        cycle_s: seconds that rounds have taken, added up.
        backlog, backlog_bytes: messages that nobody has taken yet.
        slo: (epoch, seq) of the NodeSLO in force.
        acted: what the strategies did; None for an agent that only reports.
        gauges: what else was measured.
    """

    node: str
    started_s: float
    usage: Usage | None
    pods: int
    rounds: int
    cycle_s: float
    reports: int
    sent: int
    refused: int
    dropped: int
    backlog: int
    backlog_bytes: int
    slo: tuple[int, int] | None
    slo_refused: int
    acted: Acted | None = None
    gauges: tuple[Gauge, ...] = ()


class Agent:
    """One node's agent, without its connection.

    Attributes:
        measured: set once a round has given a sample of the node.
        keeper: the NodeSLO in force.
        governor: runs the strategies after each round; None: this agent only reports.
        predictor: learns from each round; None: nothing is predicted.
    """

    def __init__(self, settings: AgentSettings, collector: Collector, outbox: Outbox, keeper: SloKeeper) -> None:
        self.measured = asyncio.Event()
        self.keeper = keeper
        self.governor: Governor | None = None
        self.predictor: Predictor | None = None
        self._wanted_s = -WANTS_PODS_INTERVAL_S
        self._failed: set[str] = set()
        self._settings = settings
        self._collector = collector
        self._outbox = outbox
        self._sender = Sender(settings.node, os.urandom(8).hex())
        self._started_s = time.time()
        self._usage: Usage | None = None
        self._applications: Mapping[str, Usage] = {}
        self._rounds = 0
        self._cycle_ns = 0
        self._reports = 0
        self._deeds = 0

    async def run(self) -> None:
        """Measure and report until cancelled; what was measured since the last report is then reported too."""
        interval_s = self._settings.collect_interval_s
        begun_s = time.monotonic()
        due_s = begun_s + min(self._settings.first_report_s, self._settings.report_interval_s)
        found, ticks = self._measure(), 0
        interval = Interval(found.at_ns)
        try:
            while True:
                # Rounds that are missed stay missed: a machine that was held up is not asked for more.
                ticks = max(ticks + 1, int((time.monotonic() - begun_s) / interval_s))
                await asyncio.sleep(begun_s + ticks * interval_s - time.monotonic())
                found = self._measure()
                interval.add(found)
                if found.at_ns >= int(due_s * SECOND_NS) - SECOND_NS // 100:
                    interval = self._report(interval, found.at_ns)
                    due_s = self._next_due(time.monotonic())
        finally:
            if found.at_ns > interval.begin_ns:
                self._report(interval, found.at_ns)

    def tell(self, deed: AnyDeed) -> None:
        """Report a deed, ahead of what else waits."""
        self._deeds += 1
        told = ActionReport(self._sender.node, self._sender.boot, self._deeds, time.time_ns(), deed)
        self._outbox.put(Message(DEED, self._deeds, actions.encode(told)))

    def figures(self) -> Figures:
        """What it shows of itself."""
        slo = self.keeper.in_force
        return Figures(
            node=self._settings.node,
            started_s=self._started_s,
            usage=self._usage,
            pods=self._collector.pods,
            rounds=self._rounds,
            cycle_s=self._cycle_ns / SECOND_NS,
            reports=self._reports,
            sent=self._outbox.sent,
            refused=self._outbox.refused,
            dropped=self._outbox.dropped,
            backlog=len(self._outbox),
            backlog_bytes=self._outbox.waiting_bytes,
            slo=slo.position if slo else None,
            slo_refused=self.keeper.refused,
            acted=self.governor.acted if self.governor is not None else None,
            gauges=(*self._gauges(), *(self.governor.gauges() if self.governor is not None else ())),
        )

    def _gauges(self) -> Iterator[Gauge]:
        """Host applications and what is predicted."""
        for name, usage in self._applications.items():
            for resource, unit, size in (("cpu", "core", usage.cpu), ("memory", "byte", usage.reported)):
                if size is not None:
                    labels = {"application_name": name, "resource": resource, "unit": unit}
                    value = size / MICRO if resource == "cpu" else size
                    yield Gauge("koordlet_host_application_resource_usage", labels, value)
        forecasts = self.predictor.forecasts if self.predictor is not None else NO_FORECASTS
        for name, forecast in (("reclaimable", forecasts.reclaimable), ("peak", forecasts.peak)):
            amounts = (forecast.cpu_milli, forecast.memory) if forecast is not None else (None, None)
            for (resource, unit, scale), size in zip(
                (("cpu", "core", 1000), ("memory", "byte", 1)), amounts, strict=True
            ):
                if size is not None:
                    labels = {"predictor": "minPredictor", "resource": resource, "unit": unit}
                    yield Gauge(f"koordlet_node_predicted_resource_{name}", labels, size / scale)

    def _measure(self) -> Round:
        slo = self.keeper.in_force
        found = self._collector.collect(self.keeper.applications, "" if slo is None else slo.memory_policy)
        self._applications = found.applications
        if self.predictor is not None:
            self._predict(self.predictor, found)
        if self.governor is not None:
            self._govern(self.governor, found)
        self._cycle_ns += time.monotonic_ns() - found.at_ns
        self._rounds += 1
        if found.node is not None:
            self._usage = found.node
            self.measured.set()
        return found

    def _govern(self, governor: Governor, found: Round) -> None:
        """Run the strategies; one that cannot go on, as an object is not what it should be, is said once and tried again."""
        now_s = time.monotonic()
        interval_s = ASKS_FOR_PODS_INTERVAL_S if governor.acted.pods is None else WANTS_PODS_INTERVAL_S
        if now_s - self._wanted_s >= interval_s and not self._outbox.deeds:
            self._wanted_s = now_s
            self.tell(PodsRequested())
        collector = self._collector
        try:
            governor.round(found, collector.hierarchy, collector.kube, collector.folders)
        except KoordError as error:
            self._say("the strategies stop for this round", error)

    def _predict(self, predictor: Predictor, found: Round) -> None:
        """Learn from a round; where an object is not what it should be, the next minute is tried again."""
        try:
            predictor.round(found)
        except KoordError as error:
            self._say("nothing is predicted for this minute", error)

    def _say(self, text: str, error: KoordError) -> None:
        """An error, once."""
        if str(error) not in self._failed:
            self._failed.add(str(error))
            log.error(text, extra={"why": str(error)})

    def _report(self, interval: Interval, end_ns: int) -> Interval:
        """Put the interval's report into the outbox; the interval that follows it."""
        if not interval.empty:
            self._reports += 1
            at_ns = time.time_ns() - (time.monotonic_ns() - end_ns)
            forecasts = self.predictor.forecasts if self.predictor is not None else NO_FORECASTS
            made = interval.report(self._sender, self._reports, end_ns, at_ns, self.keeper.applications, forecasts)
            self._outbox.put(Message(REPORT, made.seq, report.encode(made)))
        return Interval(end_ns)

    def _next_due(self, now_s: float) -> float:
        """When the next report is due: at this node's own place in every interval, so that a fleet reports evenly spread."""
        interval_s = self._settings.report_interval_s
        place = int.from_bytes(blake2b(self._settings.node.encode(), digest_size=4).digest(), "big") / 2**32
        until_s = (place * interval_s - time.time()) % interval_s
        return now_s + (until_s if until_s > interval_s / 4 else until_s + interval_s)
