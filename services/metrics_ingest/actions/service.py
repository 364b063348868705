"""Deeds ingest's shell: deeds in from NATS and MQTT, checked, appended, answered.

A service of its own beside metrics ingest, because a context has one writer and `nodes-*` is kept as long as other logs are.
"""

import asyncio
from typing import Annotated

from msgspec import Meta

from services.metrics_ingest.actions.decide import forgotten, recorded
from services.metrics_ingest.actions.manifest import MANIFEST
from services.metrics_ingest.actions.pod_publisher import PodsDesk
from services.metrics_ingest.actions.state import FOLDED, DeedsState, Told, is_told, with_number
from services.metrics_ingest.inbox import Incoming, Intake
from services.metrics_ingest.message_batches import Batch, Refusals, serve
from services.metrics_ingest.mqtt_session import Mqtt
from shared.agents import subjects
from shared.agents.actions import BadDeed, PodsRequested, decode
from shared.errors import KoordError
from shared.events.intents import EvictionRequested
from shared.events.log import WriterStarted
from shared.events.nodes import DEEDS, NodeTopologyRemoved
from shared.service import Runtime, Service
from shared.settings import Settings
from shared.tasks import end

FORGET_INTERVAL_S = 30.0


class DeedsSettings(Settings, frozen=True, kw_only=True):
    """KOORD_ACTION_INGEST_<FIELD> in the environment; `koord run action-ingest --help` prints this table."""

    max_clock_skew_s: Annotated[float, Meta(ge=0, description="seconds a deed may lie ahead of our clock")] = 30
    client: Annotated[str, Meta(description="MQTT client id; the service's name when empty")] = ""


class Deeds:
    """One leadership over one shard."""

    def __init__(self, runtime: Runtime) -> None:
        environment = runtime.environment
        self._runtime = runtime
        self._settings: DeedsSettings = runtime.settings
        self._intake = Intake(subjects.DEED, environment.shard, environment.metrics_shards)
        self._mqtt = None
        if environment.mqtt:
            name = self._settings.client or f"koord-{runtime.service.name}"
            self._mqtt = Mqtt(environment.mqtt, name, [self._intake], ca_file=environment.nats_ca)
        self._refusals = Refusals("deed", runtime.metrics.registry)
        self._pods = PodsDesk(runtime, self._mqtt)
        self._batch: Batch | None = None
        self._told: dict[str, Told] = {}  # by the batch under way, where that is newer than the State

    async def run(self) -> None:
        """Take deeds until the process is asked to stop."""
        await self._runtime.bus.attend(subjects.every_subject(subjects.DEED), self._intake.asked)
        async with asyncio.TaskGroup() as group:
            beside = [group.create_task(self._pods.run()), group.create_task(self._forget())]
            if self._mqtt is not None:
                beside.append(group.create_task(self._mqtt.run()))
            await serve(self._runtime, self._intake, self._take, self._refusals.taken)
            await end(*beside)

    async def _forget(self) -> None:
        """Take back what was stated of nodes that are gone, until cancelled."""
        while True:
            await asyncio.sleep(FORGET_INTERVAL_S)
            if drafts := forgotten(self._runtime.state):
                await self._runtime.append(drafts, now_ns=self._runtime.now_ns())

    def _take(self, message: Incoming, batch: Batch) -> None:
        """Decide on one deed."""
        state: DeedsState = self._runtime.state
        node = message.node
        if batch is not self._batch:
            self._batch, self._told = batch, {}
        told = None
        try:
            told = decode(message.data, node)
            if isinstance(told.deed, PodsRequested):
                self._pods.wanted(node)
                batch.accept(message, "deed", told.boot, told.seq)
                return
            before = self._told.get(node) or state.told.get(node)
            if not is_told(before, told.boot, told.seq):
                drafts = recorded(state, told, max_clock_skew_s=self._settings.max_clock_skew_s, now_ns=batch.now_ns)
                batch.drafts.setdefault(node, []).extend(drafts)
                self._told[node] = with_number(before, told.boot, told.seq)
        except BadDeed as error:
            boot, seq = (told.boot, told.seq) if told else ("", 0)
            self._refusals.add(message, error, batch, boot, seq)
            return
        batch.accept(message, "deed", told.boot, told.seq)


async def lead(runtime: Runtime) -> None:
    """Take deeds for as long as this replica writes its shard of `nodes-*`."""
    try:
        await Deeds(runtime).run()
    except* KoordError as failed:
        raise failed.exceptions[0] from None


SERVICE = Service(
    manifest=MANIFEST,
    follows=FOLDED,
    emits=(WriterStarted, *DEEDS, NodeTopologyRemoved, EvictionRequested),
    settings=DeedsSettings,
    new_state=DeedsState,
    lead=lead,
)
