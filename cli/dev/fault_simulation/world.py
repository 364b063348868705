"""One world: the server processes in memory, replicas of all services, agents, and a plan of what happens to them."""

import asyncio
import gc
import random
import sys
import warnings
from collections.abc import Callable
from functools import partial
from hashlib import sha256
from typing import NamedTuple

from cli.dev.fault_simulation import at_rest, cluster_objects, faults
from cli.dev.fault_simulation.api_transport import ApiTransport
from cli.dev.fault_simulation.invariants import Invariants
from cli.dev.fault_simulation.memory_api import LEASES, ApiServer
from cli.dev.fault_simulation.memory_bus import Broker
from cli.dev.fault_simulation.memory_log import BEGINS_US, MemoryPostgres
from cli.dev.fault_simulation.node_agents import NodeAgent
from cli.dev.fault_simulation.operator import Operator
from cli.dev.fault_simulation.plan import ENDS_S, SETTLES_S, Plan
from cli.dev.fault_simulation.replica import GATEWAY, ONE_SHOT_MAX_AGE_S, SERVICES, Outside, Replica
from cli.dev.fault_simulation.substitutions import substituted
from cli.dev.fault_simulation.virtual_loop import Process, VirtualLoop
from cli.dev.fault_simulation.waiting_at_rest import waiting
from cli.service_list import contexts
from services.gateway.cluster_lease import log_of
from services.gateway.effects.spend_budget_or_pause_eviction import limits_of
from shared.kube.instants import SECOND
from shared.log.position import UNKNOWN

PARTITION_ROWS = 20
MOST_VIOLATIONS = 20
SLACK_S = 6.5
"""Seconds that the tries of an effect may take after its age was compared: the deadline, and a request that hangs, and
is executed late.
"""


class Outcome(NamedTuple):
    """Outcome of a world.

    Attributes:
        violations: broken invariants, in the order in which they were found.
        steps: callbacks that ran.
        digest: of the whole history: equal for two runs of the same seed and plan.
    """

    violations: tuple[str, ...]
    steps: int
    digest: str


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
        self.kinds: dict[str, str] = {}
        self.violations: list[str] = []
        self.replicas: list[Replica] = []
        self._random = random.Random(seed + 5)  # noqa: S311
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
        self.postgres.appended = self.invariants.appended
        self.postgres.dropped = self._check_drop
        self.api.changed = self.invariants.changed
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

    def replicas_of(self, service: str) -> list[Replica]:
        """Returns the replicas of a service."""
        return [replica for replica in self.replicas if replica.service == service]

    def leader(self, service: str) -> Replica | None:
        """Returns the replica that leads; the first one that runs if none does not yet; None without any."""
        running = [replica for replica in self.replicas_of(service) if replica.running]
        leading = [replica for replica in running if replica.runtime and replica.runtime.phase == "leading"]
        return next(iter((*leading, *running)), None)

    def start_standby(self, service: str) -> None:
        """Starts a second replica."""
        replica = Replica(self._outside, service, len(self.replicas_of(service)), self._restart_s)
        self.replicas.append(replica)
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
        agent = self.agents[node] = NodeAgent(self.broker, node, self._random.random() * 3)
        self.loop.spawn(agent.process, agent.run())

    def crash_after(self, replica: Replica, callbacks: int) -> None:
        """Crashes a replica after so many more of its callbacks."""
        self._crashes[replica.process] = (replica, callbacks)

    def connect_to_a_copy(self, for_s: float) -> None:
        """Starts the gateways anew with the kubeconfig of a copy of the cluster, until someone corrects it."""
        copy = ApiServer(self._seed + 6, self.now_ns)
        for resource, objects in self.api.objects.items():
            for body in objects.values():
                copy.create(resource, cluster_objects.copied(body))

        def connect(transport: ApiTransport | None) -> None:
            self._copy_transport = transport
            for replica in self.replicas_of("gateway"):
                replica.crash()

        connect(ApiTransport(copy, self._seed + 7))
        self.later(for_s, lambda: connect(None))

    def _evicted(self, key: str, uid: str) -> None:
        self.invariants.evicted(key, uid)
        leader = self.leader("gateway")
        if self.crash_in_evictions is not None and leader is not None:
            self.crash_after(leader, self.crash_in_evictions)
            self.crash_in_evictions = None

    # -- running

    def run(self, plan: Plan) -> None:
        """Runs the plan until the world has come to rest, and checks it then."""
        outside = self.loop.outside
        with self.loop.current():
            outside.context.run(self._begin, plan)
        self.loop.run_until(ENDS_S)
        left = self._not_at_rest()
        if left or any(waiting(self)):
            # A service decides by its timers, and what it just decided is not carried out yet.
            self.loop.run_until(ENDS_S + SETTLES_S)
            left = self._not_at_rest()
        for text in (*left, *self._waits()):
            self.report(text)

    def _not_at_rest(self) -> list[str]:
        return [*at_rest.states(self), *at_rest.undone(self)]

    def _waits(self) -> list[str]:
        """Returns what waits without need, once it was tried again."""
        now_ns, found = self.now_ns(), list(waiting(self))
        if later := [each.retry_ns for each in found if each.retry_ns > now_ns]:
            self.loop.run_until(self.loop.time() + (max(later) - now_ns) / SECOND + SETTLES_S)
            found = [each for each in found if each.retry_ns <= now_ns] + list(waiting(self))
        return list(dict.fromkeys(each.text for each in found))

    def _begin(self, plan: Plan) -> None:
        for resource, body in cluster_objects.initial():
            self.api.create(resource, body)
        for service in SERVICES:
            replica = Replica(self._outside, service, 0, self._restart_s)
            self.replicas.append(replica)
            self.later(self._random.random() * 0.2, replica.start)
        for name in self.api.objects["nodes"]:
            self.start_agent(name)
        self.loop.spawn(self.operator.process, self.operator.run())
        for step in plan:
            if step.do == "create-pod":
                self.kinds[step.target] = step.what
            self.later(step.at_s, partial(faults.carry_out, self, step))

    def _known_and_live(self, resource: str) -> int:
        """Returns the number of objects that the gateway's State and the API server have under the same key."""
        leader = self.leader("gateway")
        if leader is None or leader.runtime is None:
            return -1
        return len(leader.runtime.state.known.get(resource, {}).keys() & self.api.objects[resource].keys())

    def _restart_s(self) -> float:
        return 0.3 + self._random.random()

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

    def _check_drop(self, context: str, committed_s: float) -> None:
        """Checks that a partition that is dropped is as old as the least that any service keeps."""
        keep_s = min(self.kept_s.values(), default=3600.0)
        if self.loop.time() - committed_s < keep_s:
            self.report(
                f"{context} loses events that are {self.loop.time() - committed_s:.1f} s old; it keeps {keep_s} s"
            )

    def outcome(self) -> Outcome:
        """Returns what came of it."""
        history = sha256()
        for name, context in sorted(self.postgres.contexts.items()):
            history.update(f"{name} {context.first} {context.head.seq}".encode() + context.head.digest)
        history.update(f"{self.loop.steps} {self.api.version}".encode())
        return Outcome(tuple(self.violations), self.loop.steps, history.hexdigest())

    def dispose(self) -> None:
        """Lets the tasks of all processes go."""
        self.loop.dispose()


def simulate(seed: int, plan: Plan) -> Outcome:
    """Runs one world."""
    loop_of_caller = asyncio._get_running_loop()  # noqa: SLF001
    assert loop_of_caller is None, "a world has a loop of its own"
    world = World(seed)
    with substituted(world.loop, seed):
        try:
            world.run(plan)
        except Exception as error:  # noqa: BLE001  a callback that raises is a fault of the service
            world.report(f"a callback raised {error!r}")
        outcome = world.outcome()
        world.dispose()
    return outcome


def settle_memory() -> None:
    """Frees what ended worlds have left. Their suspended coroutines are closed by this, and what they do then is of no
    interest.
    """
    hook = sys.unraisablehook
    sys.unraisablehook = lambda _: None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # coroutines that were never awaited
        try:
            gc.collect()
        finally:
            sys.unraisablehook = hook
