"""The SLO controller's service: follows its contexts, decides changed nodes slice by slice, and appends the events."""

import asyncio
import logging
from collections.abc import Iterable
from itertools import islice
from operator import is_

from prometheus_client import Counter, Gauge

from services.slo_controller.config.slo_configmap import ActiveConfig
from services.slo_controller.decide import decide_config, decide_nodes, nodes_with_expired_reports
from services.slo_controller.overcommit.cap_and_freeze_without_reports import decide_freeze
from services.slo_controller.prometheus_metrics import OUTCOMES, ReconcileMetrics
from services.slo_controller.recommendation import Recommender
from services.slo_controller.retention_carry_forward import CARRY_FORWARD
from services.slo_controller.service_manifest import COMPONENT, MANIFEST
from services.slo_controller.settings import SloSettings
from services.slo_controller.state.slo_state import FOLDED, SloState
from shared.domain.config_rejection import rejection_events
from shared.domain.offered_config import is_settled
from shared.events import Draft
from shared.events.intents import FieldsDesired, ObjectDesired
from shared.events.log import ConfigApplied, ConfigRejected, WriterStarted
from shared.events.slo import (
    NodeOvercommitted,
    NodeReportsBelieved,
    NodeReportsIgnored,
    OvercommitmentFrozen,
    OvercommitmentResumed,
    RecommendationEnded,
    RecommendationUpdated,
)
from shared.kube.instants import SECOND
from shared.runtime.service import Runtime, Service

log = logging.getLogger(__name__)

NODES_PER_APPEND = 200
"""Nodes that are decided in one append: the calculation must not block the event loop for long."""


class Controller:
    """The controller while this replica is the writer of `slo`."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._settings: SloSettings = runtime.settings
        self._began_ns = runtime.now_ns()
        self._polled_ns = 0
        self._config = ActiveConfig({})
        self._digest = ""
        self._config_decided: tuple[object, ...] = ()  # what `decide_config` last found nothing to do for
        self._recommender = Recommender()
        registry = runtime.metrics.registry
        self._decided = Counter(
            "koord_slo_decisions", "Nodes whose amounts were written, by why", ["why"], registry=registry
        )
        self._rejections = Counter(
            "koord_slo_config_rejections", "Rejected documents of the ConfigMap", registry=registry
        )
        self._reconcile_metrics = ReconcileMetrics(lambda: self._state.decided, self._settings.node_series, registry)
        self._batch = Gauge("koord_slo_batch_cpu_cores", "Batch-cpu of all nodes, in cores", registry=registry)
        self._degraded = Gauge(
            "koord_slo_degraded_nodes",
            "Nodes that are not overcommitted any further for lack of reports",
            registry=registry,
        )
        self._frozen = Gauge(
            "koord_slo_overcommitment_frozen", "1 while many nodes are silent, and amounts are kept", registry=registry
        )

    @property
    def _state(self) -> SloState:
        state: SloState = self._runtime.state
        return state

    async def run(self) -> None:
        """Decides until the service drains."""
        runtime = self._runtime
        runtime.before_fold(self._reconcile_metrics.count_outcome)
        while not runtime.draining.is_set():
            worked = self._is_settled() and await self._decide_slice()
            if not worked:
                await runtime.changed(self._settings.poll_interval_s if self._is_settled() else 0.5)

    def _is_settled(self) -> bool:
        """Without its ConfigMap, overcommitment would seem to be off."""
        running_ns = self._runtime.now_ns() - self._began_ns
        return is_settled(self._state, running_ns, self._settings.debounce_s)

    async def _decide_slice(self) -> bool:
        """Decides one slice of the changed nodes. Returns whether there were any."""
        runtime, state = self._runtime, self._state
        if drafts := self._config_drafts(state):
            for draft in drafts:
                if isinstance(draft.event, ConfigRejected):
                    self._rejections.inc()
                    log.warning(
                        "a document is refused; the last good one stays",
                        extra={"config": draft.event.source, "path": draft.event.path, "why": draft.event.reason},
                    )
            now_ns = runtime.now_ns()
            drafts += rejection_events(drafts, uid=state.config_uid, component=COMPONENT, now_ns=now_ns)
            await runtime.append(drafts, now_ns=now_ns)
            state = self._state
            self._reconcile_metrics.count_documents(drafts, state.texts)
        if self._digest != state.config_digest:
            self._config, self._digest = ActiveConfig(state.texts), state.config_digest
        now_ns = runtime.now_ns()
        if now_ns - self._polled_ns > self._settings.poll_interval_s * SECOND:
            self._polled_ns = now_ns
            await self._freeze(now_ns)
            state = self._state
            state.changed |= dict.fromkeys(nodes_with_expired_reports(state, self._config, now_ns))
            self._measure()
            if drafts := self._recommender.update(state, now_ns):
                await runtime.append(drafts, now_ns=now_ns, config=state.config_digest)
        names = list(islice(state.changed, NODES_PER_APPEND))
        for name in names:
            del state.changed[name]
        await self._decide(names, now_ns)
        await asyncio.sleep(0)
        return bool(names)

    def _config_drafts(self, state: SloState) -> list[Draft]:
        """Decides the ConfigMap, which is parsed and checked again only once something about it has changed."""
        inputs = (state.config_data, state.texts, state.config_digest, state.rejected_digest)
        if len(self._config_decided) == len(inputs) and all(map(is_, inputs, self._config_decided)):
            return []
        drafts = decide_config(state)
        self._config_decided = () if drafts else inputs
        return drafts

    async def _freeze(self, now_ns: int) -> None:
        """Freezes or resumes overcommitment."""
        for draft in (drafts := decide_freeze(self._state, self._config, self._settings, now_ns)):
            assert isinstance(draft.event, OvercommitmentFrozen | OvercommitmentResumed)
            silent, nodes = draft.event.silent, draft.event.nodes
            if isinstance(draft.event, OvercommitmentFrozen):
                log.error("overcommitment is frozen: many nodes are silent", extra={"silent": silent, "nodes": nodes})
            else:
                log.info("overcommitment resumes", extra={"silent": silent, "nodes": nodes})
        if drafts:
            await self._runtime.append(drafts, now_ns=now_ns, config=self._state.config_digest)

    async def _decide(self, names: Iterable[str], now_ns: int) -> None:
        drafts: list[Draft] = decide_nodes(self._state, self._config, names, self._settings, now_ns)
        if not drafts:
            return
        for draft in drafts:
            if isinstance(draft.event, NodeOvercommitted):
                self._decided.labels(draft.event.why).inc()
        made = {name: None for name in names if name in self._state.node_slos}
        self._reconcile_metrics.count_appended(
            await self._runtime.append(drafts, now_ns=now_ns, config=self._state.config_digest), made
        )

    def _measure(self) -> None:
        decided = self._state.decided
        self._batch.set(sum(each.batch_cpu.amount for each in decided.values() if each.batch_cpu) / 1000)
        degraded = sum(each.why == "degraded" for each in decided.values())
        self._degraded.set(degraded)
        self._frozen.set(self._state.frozen)
        self._runtime.counts.update(nodes=len(self._state.nodes), decided=len(decided), degraded=degraded)


async def lead(runtime: Runtime) -> None:
    """Runs the controller for as long as this replica writes `slo`."""
    await Controller(runtime).run()


SERVICE = Service(
    manifest=MANIFEST,
    follows={**FOLDED, "cluster": (*FOLDED["cluster"], *OUTCOMES)},
    emits=(
        NodeOvercommitted,
        NodeReportsIgnored,
        NodeReportsBelieved,
        OvercommitmentFrozen,
        OvercommitmentResumed,
        RecommendationUpdated,
        RecommendationEnded,
        FieldsDesired,
        ObjectDesired,
        ConfigApplied,
        ConfigRejected,
        WriterStarted,
    ),
    settings=SloSettings,
    new_state=SloState,
    lead=lead,
    carry_forward=CARRY_FORWARD,
)
"""The SLO controller: overcommitment, NodeSLO and NodeMetric."""
