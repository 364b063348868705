"""The service action-ingest: takes actions from NATS and MQTT, checks, appends and answers them.

It is a service of its own, apart from metrics-ingest, because a context has one writer and `nodes-*` is kept as long as
other contexts, while `metrics-*` is not.
"""

import asyncio
from typing import Annotated

from msgspec import Meta

from services.metrics_ingest.agent_actions.decide_action import action_events, checked_records, removed_topologies
from services.metrics_ingest.agent_actions.interfered_pods import interference_differences
from services.metrics_ingest.agent_actions.node_pods_and_actions_state import (
    FOLDED,
    ActionIngestState,
    RecordedActions,
    is_recorded,
    with_number,
)
from services.metrics_ingest.agent_actions.publish_node_pods_to_agents import NodePodsPublisher
from services.metrics_ingest.agent_actions.retention_carry_forward import CARRY_FORWARD
from services.metrics_ingest.agent_actions.service_manifest import MANIFEST
from shared.agents import subjects
from shared.agents.actions import BadAction, HooksReported, PodsRequested, decode
from shared.events.intents import EvictionRequested, FieldsDesired, ObjectDesired
from shared.events.log import WriterStarted
from shared.events.nodes import AGENT_ACTIONS, NodeTopologyRemoved
from shared.ingest.agent_message_queue import AgentInbox, Incoming
from shared.ingest.message_loop import Batch, serve
from shared.ingest.mqtt_session import MqttSession
from shared.ingest.rejection_log import RejectionLog
from shared.runtime.service import Runtime, Service
from shared.runtime.task_cancellation import cancel_and_wait
from shared.runtime.task_group_errors import first_error_alone
from shared.settings import Settings

DIFFERENCES_INTERVAL_S = 5.0


class ActionIngestSettings(Settings, frozen=True, kw_only=True):
    """KOORD_ACTION_INGEST_<FIELD> in the environment; `koord run action-ingest --help` prints this table."""

    max_clock_skew_s: Annotated[float, Meta(ge=0, description="seconds an action may lie ahead of our clock")] = 30
    client: Annotated[str, Meta(description="MQTT client id; the service's name when empty")] = ""


class ActionIngest:
    """One term of leadership over one shard."""

    def __init__(self, runtime: Runtime) -> None:
        environment = runtime.environment
        self._runtime = runtime
        self._settings: ActionIngestSettings = runtime.settings
        self._inbox = AgentInbox(subjects.ACTION, environment.shard, environment.metrics_shards)
        self._mqtt = MqttSession.of_service(runtime, self._settings.client, self._inbox)
        self._rejections = RejectionLog("action", runtime.metrics.registry, runtime.rejections)
        self._pod_publisher = NodePodsPublisher(runtime, self._mqtt)
        self._batch: Batch | None = None
        # The State follows after the append, so repeats within the batch under way are recognised by this.
        self._recorded_in_batch: dict[str, RecordedActions] = {}

    async def run(self) -> None:
        """Takes actions until the process drains."""
        await self._runtime.bus.handle(subjects.every_subject(subjects.ACTION), self._inbox.receive_request)
        async with asyncio.TaskGroup() as group:
            background = [group.create_task(self._pod_publisher.run()), group.create_task(self._append_differences())]
            if self._mqtt is not None:
                background.append(group.create_task(self._mqtt.run()))
            await serve(self._runtime, self._inbox, self._decide, self._rejections.accepted)
            await cancel_and_wait(*background)

    async def _append_differences(self) -> None:
        """Removes topologies of nodes that have left the cluster, ends the interference of pods that are gone, and
        labels nodes, until cancelled.
        """
        while True:
            await asyncio.sleep(DIFFERENCES_INTERVAL_S)
            state, now_ns = self._runtime.state, self._runtime.now_ns()
            if drafts := [*removed_topologies(state), *interference_differences(state, now_ns)]:
                await self._runtime.append(drafts, now_ns=now_ns)

    def _decide(self, message: Incoming, batch: Batch) -> None:
        """Decides on one action and adds its events and its receipt to the batch."""
        state: ActionIngestState = self._runtime.state
        node = message.node
        if batch is not self._batch:
            self._batch, self._recorded_in_batch = batch, {}
        report = None
        try:
            report = decode(message.data, node)
            if isinstance(report.action, PodsRequested):
                self._pod_publisher.request(node)
                batch.accept(message, "action", report.boot, report.seq)
                return
            before = self._recorded_in_batch.get(node) or state.recorded_actions.get(node)
            if not is_recorded(before, report.boot, report.seq):
                drafts = action_events(
                    state, report, max_clock_skew_s=self._settings.max_clock_skew_s, now_ns=batch.now_ns
                )
                batch.drafts.setdefault(node, []).extend(drafts)
                if isinstance(report.action, HooksReported):
                    for faulty in checked_records(state, report, report.action.containers)[1]:
                        self._rejections.leave_out(message, faulty)
                self._recorded_in_batch[node] = with_number(before, report.boot, report.seq)
        except BadAction as error:
            boot, seq = (report.boot, report.seq) if report else ("", 0)
            self._rejections.add(message, error, batch, boot, seq)
            return
        batch.accept(message, "action", report.boot, report.seq)


async def lead(runtime: Runtime) -> None:
    """Takes actions for as long as this replica writes its shard of `nodes-*`."""
    with first_error_alone():
        await ActionIngest(runtime).run()


SERVICE = Service(
    manifest=MANIFEST,
    follows=FOLDED,
    emits=(WriterStarted, *AGENT_ACTIONS, NodeTopologyRemoved, EvictionRequested, FieldsDesired, ObjectDesired),
    settings=ActionIngestSettings,
    new_state=ActionIngestState,
    lead=lead,
    carry_forward=CARRY_FORWARD,
)
