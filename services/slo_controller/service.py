"""The SLO controller's shell: follow, decide the nodes that changed, a slice at a time, and append. No arithmetic."""

import asyncio
import logging
from collections.abc import Iterable
from itertools import islice

from prometheus_client import Counter, Gauge

from services.slo_controller.config.slo_configmap import InForce
from services.slo_controller.decide import decide_config, decide_nodes, expired
from services.slo_controller.manifest import MANIFEST
from services.slo_controller.prometheus_metrics import OUTCOMES, Exported
from services.slo_controller.recommendation import Recommender
from services.slo_controller.settings import SloSettings
from services.slo_controller.state.slo_state import FOLDED, SloState
from shared.events import Draft
from shared.events.intents import FieldsDesired, ObjectDesired
from shared.events.log import ConfigApplied, ConfigRejected, WriterStarted
from shared.events.slo import NodeOvercommitted, RecommendationEnded, RecommendationUpdated
from shared.kube.instants import SECOND
from shared.runtime.service import Runtime, Service

log = logging.getLogger(__name__)

AT_ONCE = 200
"""Nodes that are decided in one append: their arithmetic must not hold the loop for long."""


class Controller:
    """One leadership."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._settings: SloSettings = runtime.settings
        self._began_ns = runtime.now_ns()
        self._looked_ns = 0
        self._config = InForce({})
        self._digest = ""
        self._recommender = Recommender()
        registry = runtime.metrics.registry
        self._decided = Counter(
            "koord_slo_decisions", "Nodes whose amounts were written, by why", ["why"], registry=registry
        )
        self._refusals = Counter("koord_slo_config_refusals", "Documents that were not taken over", registry=registry)
        self._exported = Exported(lambda: self._state.decided, self._settings.node_series, registry)
        self._batch = Gauge("koord_slo_batch_cpu_cores", "Batch-cpu of all nodes, in cores", registry=registry)
        self._degraded = Gauge(
            "koord_slo_degraded_nodes", "Nodes that sell nothing for want of reports", registry=registry
        )

    @property
    def _state(self) -> SloState:
        state: SloState = self._runtime.state
        return state

    async def run(self) -> None:
        """Decide until the process is asked to stop."""
        runtime = self._runtime
        runtime.before_fold(self._exported.ended)
        while not runtime.draining.is_set():
            worked = self._is_settled() and await self._turn()
            if not worked:
                await runtime.changed(self._settings.poll_interval_s if self._is_settled() else 0.5)

    def _is_settled(self) -> bool:
        """Whether what the log says is the whole cluster: without its ConfigMap all nodes would seem to be switched off."""
        state = self._state
        if state.listed or state.config:
            return True
        return self._runtime.now_ns() - self._began_ns > self._settings.debounce_s * SECOND

    async def _turn(self) -> bool:
        """One slice of what waits; whether anything did."""
        runtime, state = self._runtime, self._state
        if drafts := decide_config(state):
            for draft in drafts:
                if isinstance(draft.event, ConfigRejected):
                    self._refusals.inc()
                    log.warning("a document is refused; the last good one stays", extra={"why": draft.event.reason})
            await runtime.append(drafts, now_ns=runtime.now_ns())
            state = self._state
            self._exported.configured(drafts, state.texts)
        if self._digest != state.config:
            self._config, self._digest = InForce(state.texts), state.config
        now_ns = runtime.now_ns()
        if now_ns - self._looked_ns > self._settings.poll_interval_s * SECOND:
            self._looked_ns = now_ns
            state.changed |= dict.fromkeys(expired(state, self._config, now_ns))
            self._measure()
            if drafts := self._recommender.turn(state, now_ns):
                await runtime.append(drafts, now_ns=now_ns, config=state.config)
        names = list(islice(state.changed, AT_ONCE))
        for name in names:
            del state.changed[name]
        await self._decide(names, now_ns)
        await asyncio.sleep(0)
        return bool(names)

    async def _decide(self, names: Iterable[str], now_ns: int) -> None:
        drafts: list[Draft] = decide_nodes(self._state, self._config, names, self._settings, now_ns)
        if not drafts:
            return
        for draft in drafts:
            if isinstance(draft.event, NodeOvercommitted):
                self._decided.labels(draft.event.why).inc()
        made = {name: None for name in names if name in self._state.slos}
        self._exported.said(await self._runtime.append(drafts, now_ns=now_ns, config=self._state.config), made)

    def _measure(self) -> None:
        decided = self._state.decided
        self._batch.set(sum(each.batch_cpu.amount for each in decided.values() if each.batch_cpu) / 1000)
        degraded = sum(each.why == "degraded" for each in decided.values())
        self._degraded.set(degraded)
        self._runtime.counts.update(nodes=len(self._state.nodes), decided=len(decided), degraded=degraded)


async def lead(runtime: Runtime) -> None:
    """Decide for as long as this replica writes `slo`."""
    await Controller(runtime).run()


SERVICE = Service(
    manifest=MANIFEST,
    follows={**FOLDED, "cluster": (*FOLDED["cluster"], *OUTCOMES)},
    emits=(
        NodeOvercommitted,
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
)
"""The SLO controller: over-commitment, NodeSLO, and how nodes report."""
