"""The service device-discovery: takes inventories from NATS and MQTT, records changes, and keeps the Device objects."""

import asyncio
import logging
from itertools import islice

from prometheus_client import Counter, Gauge

from services.device_discovery.decide_device_object import decide_node
from services.device_discovery.decide_inventory import check_time, inventory_events, losses
from services.device_discovery.repeated_inventory_check_and_rate_limit import ChangeBudget, NodeInventory
from services.device_discovery.retention_carry_forward import CARRY_FORWARD
from services.device_discovery.service_manifest import MANIFEST
from services.device_discovery.settings import DiscoverySettings
from services.device_discovery.state import FOLDED, DiscoveryState, all_devices
from shared.agents import subjects
from shared.agents.device_inventory import BadInventory, Inventory, decode, devices_of
from shared.agents.receipt import Receipt
from shared.events import Draft
from shared.events.devices import DEVICE_EVENTS, NodeDevicesRemoved, NodeDevicesReported
from shared.events.intents import ObjectDesired
from shared.events.log import WriterStarted
from shared.ingest.agent_message_queue import AgentInbox, Incoming
from shared.ingest.message_loop import Batch, serve
from shared.ingest.mqtt_session import MqttSession
from shared.ingest.rejection_log import RejectionLog
from shared.runtime.service import Runtime, Service
from shared.runtime.task_cancellation import cancel_and_wait
from shared.runtime.task_group_errors import first_error_alone

log = logging.getLogger(__name__)

POLL_INTERVAL_S = 1.0
"""Interval of checks for inventories that wait, when nothing else wakes the loop."""
SILENCE_CHECK_INTERVAL_S = 5.0
NODES_PER_APPEND = 200
"""Nodes whose Device is decided in one append."""
MOST_NODES = 100_000
"""Nodes of which something is remembered; beyond these, names of no node of the cluster are forgotten."""
WAITED = "waited"
"""The transport of a message that waited here for its turn; a receipt that says so was sent before."""


async def _no_answer(_: Receipt) -> None:
    """The receipt was sent when the message came."""


class Discovery:
    """One term of leadership over one shard."""

    def __init__(self, runtime: Runtime) -> None:
        environment = runtime.environment
        self._runtime = runtime
        self._settings: DiscoverySettings = runtime.settings
        self._inbox = AgentInbox(subjects.INVENTORY, environment.shard, environment.metrics_shards)
        self._mqtt = MqttSession.of_service(runtime, self._settings.client, self._inbox)
        registry = runtime.metrics.registry
        self._rejections = RejectionLog("inventory", registry, runtime.rejections)
        self._compared = Counter(
            "koord_devices_inventories_compared",
            "Inventories that differ from their node's last one",
            registry=registry,
        )
        self._events = Counter("koord_devices_events", "Events about devices, by type", ["type"], registry=registry)
        self._devices = Gauge("koord_devices", "Devices, by whether they are healthy", ["healthy"], registry=registry)
        self._silent = Gauge(
            "koord_devices_silent_nodes", "Nodes with devices that send no inventories", registry=registry
        )
        self._nodes: dict[str, NodeInventory] = {}
        self._waiting: dict[str, Incoming] = {}
        self._logged_silent: dict[str, None] = {}
        self._began_s = asyncio.get_running_loop().time()

    @property
    def _state(self) -> DiscoveryState:
        state: DiscoveryState = self._runtime.state
        return state

    async def run(self) -> None:
        """Takes inventories until the process drains."""
        await self._runtime.bus.handle(subjects.every_subject(subjects.INVENTORY), self._inbox.receive_request)
        async with asyncio.TaskGroup() as group:
            background = [group.create_task(self._mqtt.run())] if self._mqtt is not None else []
            # Ends by itself, as a task that uses the writer's connection is never cancelled.
            group.create_task(self._keep_objects())
            await serve(self._runtime, self._inbox, self._decide, self._rejections.accepted)
            await cancel_and_wait(*background)

    def _decide(self, message: Incoming, batch: Batch) -> None:
        """Decides on one inventory and adds its events and its receipt to the batch."""
        node = message.node
        if message.transport == WAITED and self._waiting.get(node) is not message:
            return  # a newer one was decided meanwhile
        inventory = None
        try:
            inventory = decode(message.data, node)
            if not self._is_repeated(inventory):
                batch.drafts[node] = self._drafts(message, inventory, batch.now_ns)
        except BadInventory as error:
            if message.transport == WAITED:
                del self._waiting[node]
            boot, seq = (inventory.boot, inventory.seq) if inventory else ("", 0)
            self._rejections.add(message, error, batch, boot, seq)
            return
        if message.transport != WAITED:
            answer = batch.keep if node in self._waiting else batch.accept
            answer(message, "inventory", inventory.boot, inventory.seq)

    def _is_repeated(self, inventory: Inventory) -> bool:
        known = self._nodes.get(inventory.node)
        if known is None:
            return False
        known.received_s = asyncio.get_running_loop().time()
        return known.is_repeated(inventory)

    def _drafts(self, message: Incoming, inventory: Inventory, now_ns: int) -> list[Draft]:
        """Decides on an inventory that may change something; the message waits while not all can be recorded.

        Raises:
            BadInventory: its time or its content is invalid.
        """
        node, state = inventory.node, self._state
        check_time(state, inventory, max_clock_skew_s=self._settings.max_clock_skew_s, now_ns=now_ns)
        content = devices_of(inventory)
        self._compared.inc()
        known, now_s = self._known(node), asyncio.get_running_loop().time()
        is_known = node in state.nodes
        drafts = inventory_events(state, inventory, content, now_ns) if is_known else []
        completely = is_known and (not drafts or known.budget.spend(now_s))
        known.accept(inventory, completely=completely)
        self._waiting.pop(node, None)
        if not completely:
            self._waiting[node] = message._replace(transport=WAITED, answer=_no_answer)
            drafts = losses(drafts)
        for draft in drafts:
            self._events.labels(type(draft.event).__name__).inc()
        return drafts

    def _known(self, node: str) -> NodeInventory:
        known = self._nodes.get(node)
        if known is None:
            if len(self._nodes) >= MOST_NODES:
                self._forget(next((name for name in self._nodes if name not in self._state.nodes), node))
            now_s = asyncio.get_running_loop().time()
            budget = ChangeBudget(self._settings.change_interval_s, self._settings.change_burst, now_s)
            known = self._nodes[node] = NodeInventory(budget, now_s)
        return known

    def _forget(self, node: str) -> None:
        self._nodes.pop(node, None)
        self._waiting.pop(node, None)

    async def _keep_objects(self) -> None:
        """Decides the Device objects of changed nodes, and hands on inventories that waited, until the process drains."""
        runtime, measured_s = self._runtime, 0.0
        while not runtime.draining.is_set():
            now_s, now_ns = asyncio.get_running_loop().time(), runtime.now_ns()
            names = list(islice(self._state.changed, NODES_PER_APPEND))
            drafts: list[Draft] = []
            for name in names:
                del self._state.changed[name]
                drafts += decide_node(self._state, name, now_ns, is_own=self._inbox.concerns(name))
            if drafts:
                await runtime.append(drafts, now_ns=now_ns)
            for draft in drafts:
                if isinstance(draft.event, NodeDevicesRemoved):
                    # After the append: an inventory that was compared with the State before it changed nothing.
                    self._forget(draft.event.node)
            await self._hand_on(now_s)
            if now_s - measured_s > SILENCE_CHECK_INTERVAL_S:
                measured_s = now_s
                self._measure(now_s)
            if names:
                await asyncio.sleep(0)
            else:
                await runtime.changed(POLL_INTERVAL_S)

    async def _hand_on(self, now_s: float) -> None:
        """Puts inventories back into the inbox whose node has come, or may change again."""
        for node, message in list(self._waiting.items()):
            if node in self._state.nodes and self._known(node).budget.has_token(now_s):
                await self._inbox.put_back(message)

    def _measure(self, now_s: float) -> None:
        """Updates the metrics, and logs nodes with devices that have stopped sending inventories."""
        healthy = [entry.found.health for entry in all_devices(self._state)]
        self._devices.labels("true").set(sum(healthy))
        self._devices.labels("false").set(len(healthy) - sum(healthy))
        limit_s = self._settings.stale_after_s
        silent = {
            node: None
            for node in self._state.reported
            if now_s - (self._nodes[node].received_s if node in self._nodes else self._began_s) > limit_s
            and self._inbox.concerns(node)
        }
        for node in silent.keys() - self._logged_silent.keys():
            log.warning("a node with devices sends no inventories; its devices stay", extra={"node": node})
        for node in self._logged_silent.keys() - silent.keys():
            log.info("a silent node sends inventories again, or is gone", extra={"node": node})
        self._logged_silent = silent
        self._silent.set(len(silent))
        self._runtime.counts.update(
            nodes=len(self._state.reported),
            devices=len(healthy),
            unhealthy_devices=len(healthy) - sum(healthy),
            silent_nodes=len(silent),
            waiting_inventories=len(self._waiting),
            ignored_inventories=sum(bool(one.ignored or one.unread) for one in self._state.reported.values()),
        )


async def lead(runtime: Runtime) -> None:
    """Takes inventories for as long as this replica writes its shard of `devices-*`."""
    with first_error_alone():
        await Discovery(runtime).run()


SERVICE = Service(
    manifest=MANIFEST,
    follows=FOLDED,
    emits=(WriterStarted, *DEVICE_EVENTS, NodeDevicesReported, NodeDevicesRemoved, ObjectDesired),
    settings=DiscoverySettings,
    new_state=DiscoveryState,
    lead=lead,
    carry_forward=CARRY_FORWARD,
)
