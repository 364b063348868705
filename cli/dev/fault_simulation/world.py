"""One world: the server processes in memory, replicas of all services, agents, and what is checked after each step."""

import random
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

from cli.dev.fault_simulation import cluster_objects
from cli.dev.fault_simulation.api_transport import ApiTransport
from cli.dev.fault_simulation.invariants import Invariants
from cli.dev.fault_simulation.memory_api import LEASES, ApiServer, Body
from cli.dev.fault_simulation.memory_bus import Broker
from cli.dev.fault_simulation.memory_log import BEGINS_US, MemoryPostgres, Row
from cli.dev.fault_simulation.node_agents import NodeAgent
from cli.dev.fault_simulation.node_cards import NodeCards
from cli.dev.fault_simulation.operator import Operator
from cli.dev.fault_simulation.plan_step import FAULTS_LAST_S
from cli.dev.fault_simulation.replica import GATEWAY, ONE_SHOT_MAX_AGE_S, Outside, Replica
from cli.dev.fault_simulation.virtual_loop import Process, VirtualLoop
from cli.dev.fault_simulation.volume_controller import VolumeController
from cli.dev.fault_simulation.workload_controller import WorkloadController
from cli.service_list import contexts
from services.gateway.cluster_lease import log_of
from services.gateway.effects.spend_budget_or_pause_eviction import limits_of
from shared.events.cluster import EvictionPaused
from shared.log.position import UNKNOWN

_PAUSED = EvictionPaused.type_name()

PARTITION_ROWS = 20
MOST_VIOLATIONS = 20
SLACK_S = 6.5
"""Seconds that the tries of an effect may take after its age was compared: the deadline, and a request that hangs, and
is executed late.
"""


class World:
    """The world while it runs."""

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self.loop = VirtualLoop(seed, self._after_step)  # type: ignore[abstract]  # what a world does not use
        self.postgres = MemoryPostgres(seed + 1, dict.fromkeys(contexts(1), PARTITION_ROWS))
        self.broker = Broker(seed + 2)
        self.api = ApiServer(seed + 3, self.now_ns)
        self.transport = ApiTransport(self.api, seed + 4)
        self.invariants = Invariants(self.api, self.report, ONE_SHOT_MAX_AGE_S + SLACK_S, limits_of(GATEWAY))
        self.agents: dict[str, NodeAgent] = {}
        self.cards: dict[str, NodeCards] = {}
        self.kinds: dict[str, str] = {}
        self.violations: list[str] = []
        self.replicas: list[Replica] = []
        self.random = random.Random(seed + 5)  # noqa: S311
        self._copy_transport: ApiTransport | None = None
        self._crashes: dict[Process, tuple[Replica, int]] = {}
        self.kept_s: dict[str, float] = {}
        self._outside = Outside(
            self.loop,
            self.postgres,
            self.broker,
            lambda: self._copy_transport or self.transport,
            self.report,
            self.kept_s,
        )
        self.operator = Operator(self.broker, self.api.objects, self._known_and_live)
        self.postgres.appended = self._appended
        self.postgres.dropped = self._dropped
        self._volumes = VolumeController(self.api, seed + 10, lambda: self.loop.time() > FAULTS_LAST_S)
        self._workloads = WorkloadController(self.api, seed + 11)
        self.api.changed = self._changed
        self.api.evicted = self._evicted
        self.transport.writing = self._check_lease
        self.crash_in_evictions: int | None = None

    def report(self, text: str) -> None:
        """Records a broken invariant."""
        if len(self.violations) < MOST_VIOLATIONS:
            self.violations.append(f"{self.loop.time():.3f} s: {text}")

    def now_ns(self) -> int:
        """Returns the right time."""
        return BEGINS_US * 1000 + int(self.loop.time() * 1e9)

    # -- what steps use

    def later(self, delay_s: float, callback: Callable[[], object]) -> None:
        """Calls the callback after a delay, whether or not the process that asked for it still runs."""
        self.loop.call_later(delay_s, callback, context=self.loop.outside.context)

    def begin(self, process: Process, work: Callable[..., Coroutine[Any, Any, None]], *args: Any) -> None:
        """Starts what an agent or the operator does. An error in it breaks the world: without them it tests less."""
        self.loop.spawn(process, self._reporting(process, work, *args))

    async def _reporting(self, process: Process, work: Callable[..., Coroutine[Any, Any, None]], *args: Any) -> None:
        try:
            await work(*args)
        except Exception as error:  # noqa: BLE001  whatever ends it
            self.report(f"the {process.name} ended with {error!r}")

    def replicas_of(self, service: str) -> list[Replica]:
        """Returns the replicas of a service."""
        return [replica for replica in self.replicas if replica.service == service]

    def leader(self, service: str) -> Replica | None:
        """Returns the replica that leads; the first one that runs if none does not yet; None without any."""
        running = [replica for replica in self.replicas_of(service) if replica.running]
        leading = [replica for replica in running if replica.runtime and replica.runtime.phase == "leading"]
        return next(iter((*leading, *running)), None)

    def start_replica(self, service: str, after_s: float = 0) -> None:
        """Starts the first replica of a service, or one more."""
        replica = Replica(self._outside, service, len(self.replicas_of(service)), self._restart_s)
        self.replicas.append(replica)
        if after_s:
            self.later(after_s, replica.start)
        else:
            replica.start()

    def start_second_system(self, for_s: float, *, drains: bool) -> None:
        """Starts the gateway of a system with a log of its own on the same cluster, until someone ends it."""
        own = self._outside._replace(
            postgres=MemoryPostgres(self._seed + 8, dict.fromkeys(contexts(1), PARTITION_ROWS)),
            broker=Broker(self._seed + 9),
            api=lambda: self.transport,
            kept_s={},
        )
        replica = Replica(own, "gateway", 0, self._restart_s)
        replica.name = "the gateway of a second system"
        replica.start()
        self.later(for_s, partial(replica.retire, drains=drains))

    def start_agent(self, node: str) -> None:
        """Starts a node's agent."""
        agent = self.agents[node] = NodeAgent(self.broker, node, self.random.random() * 3)
        self.begin(agent.process, agent.run)

    def report_devices(self, node: str) -> None:
        """Lets a node's agent report its cards from now on."""
        if node not in self.cards and node in self.agents:
            agent, cards = self.agents[node], NodeCards(node)
            self.cards[node] = cards
            self.begin(agent.process, cards.report, agent, self.invariants.cards.answered)

    def crash_after(self, replica: Replica, callbacks: int) -> None:
        """Crashes a replica after so many more of its callbacks."""
        self._crashes[replica.process] = (replica, callbacks)

    def connect_to_a_copy(self, for_s: float) -> None:
        """Starts the gateways anew with the kubeconfig of a copy of the cluster, until someone corrects it."""
        copy = ApiServer(self._seed + 6, self.now_ns)
        for resource, objects in self.api.objects.items():
            copy.install(resource)
            for body in objects.values():
                copy.create(resource, cluster_objects.copied(body))

        def connect(transport: ApiTransport | None) -> None:
            self._copy_transport = transport
            for replica in self.replicas_of("gateway"):
                replica.crash()

        connect(ApiTransport(copy, self._seed + 7))
        self.later(for_s, lambda: connect(None))

    def _appended(self, context: str, rows: list[Row]) -> None:
        """Checks a commit. From the first eviction that waits for budget on the operator looks at those that wait: they
        hold room for the pods that they are for.
        """
        self.invariants.appended(context, rows)
        operator = self.operator
        if not operator.watches_evictions and context == "cluster" and any(row.type == _PAUSED for row in rows):
            operator.watches_evictions = True
            self.begin(operator.process, operator.watch_evictions)

    def _changed(self, resource: str, key: str, before: Body | None, after: Body | None) -> None:
        self.invariants.changed(resource, key, before, after)
        self._volumes.changed(resource, key, before, after)
        self._workloads.changed(resource, key, before, after)

    def _evicted(self, key: str, uid: str) -> None:
        self.invariants.evicted(key, uid)
        leader = self.leader("gateway")
        if self.crash_in_evictions is not None and leader is not None:
            self.crash_after(leader, self.crash_in_evictions)
            self.crash_in_evictions = None

    def _known_and_live(self, resource: str) -> int:
        """Returns the number of objects that the gateway's State and the API server have under the same key."""
        leader = self.leader("gateway")
        if leader is None or leader.runtime is None:
            return -1
        return len(leader.runtime.state.known.get(resource, {}).keys() & self.api.objects[resource].keys())

    def _restart_s(self) -> float:
        return 0.3 + self.random.random()

    def _after_step(self, process: Process) -> None:
        """Compares the beliefs of the process with the log, and crashes it if a step of the plan wants it here."""
        if process.owner is not None:
            self._check_beliefs(process.owner)
        if self._crashes and process in self._crashes:
            replica, left = self._crashes[process]
            if left > 0:
                self._crashes[process] = (replica, left - 1)
            else:
                del self._crashes[process]
                if replica.process is process:
                    replica.crash()

    def _check_beliefs(self, replica: Replica) -> None:
        """Checks that what a replica has folded is in the log."""
        if replica.runtime is None:
            return
        folded = replica.runtime.follower.folded
        if folded == replica.folded:
            return
        replica.folded, checked = folded, replica.believed
        for name, position in replica.runtime.follower.positions.items():
            if checked.get(name) is position:
                continue
            checked[name] = position
            context = replica.postgres.contexts[name]
            if position.seq < context.first:
                continue  # nothing yet, or dropped since
            if position.digest not in (UNKNOWN, context.digest_at(position.seq)):
                self.report(f"{replica.name} has folded {name}/{position.seq}, which the log does not hold")

    def _check_lease(self, process: Process, request: str) -> None:
        """Checks that a gateway sends no write while the Lease is that of another system."""
        replica: Replica | None = process.owner
        if replica is None or replica.runtime is None:
            return
        for lease in self.api.objects[LEASES].values():
            if (holder := log_of(lease)) and holder != replica.runtime.state.log:
                self.report(f"{replica.name} sends {request.partition('?')[0]}, and the Lease is that of {holder}")

    def _dropped(self, context: str, first: int, committed_s: float) -> None:
        """Checks that a partition that is dropped is as old as the least that any service keeps."""
        self.invariants.dropped(context, first)
        keep_s = min(self.kept_s.values(), default=3600.0)
        if self.loop.time() - committed_s < keep_s:
            self.report(
                f"{context} loses events that are {self.loop.time() - committed_s:.1f} s old; it keeps {keep_s} s"
            )
