"""A log as a running system leaves it, for `koord bench answers`: observations, placements, the ledger's own events,
over-commitments, actions of agents, and snapshots of the ledger and the scheduler a little before the end.

The quota ledger's events are those that its own code decides for the observations and placements.
"""

import time
from collections.abc import Callable, Iterable

from msgspec.structs import replace

from cli.bench.synthetic_history import NODES, WAVE, history
from cli.service_list import contexts
from services.quota_ledger.decide.decide_ledger_events import postings, runtimes, structure
from services.quota_ledger.service import SERVICE
from services.quota_ledger.settings import LedgerSettings
from services.quota_ledger.state.ledger_state import FOLDED
from services.scheduler.service_manifest import MANIFEST as SCHEDULER
from services.scheduler.state.gang_wait_history import KEPT
from services.scheduler.state.scheduler_state import FOLDED as FOLDED_BY_SCHEDULER
from services.scheduler.state.scheduler_state import SchedulerState
from shared.domain.gang import MINIMUM, NAME
from shared.events import Draft, Event
from shared.events.cluster import InitialListCompleted, NodeMetricObserved, ObjectObserved, PodObserved
from shared.events.log import ConfigApplied
from shared.events.nodes import BestEffortSuppressed
from shared.events.scheduling import Candidate, ClassEvaluated, CycleDecided, GangPlaced, PodOutcome, PodPlaced
from shared.events.slo import NodeOvercommitted, OvercommitBreakdown
from shared.kube.elastic_quota import QUOTA_NAME, RESOURCES
from shared.kube.instants import SECOND
from shared.kube.meta import Metadata
from shared.kube.pod import Container, Pod, PodSpec, ResourceRequirements
from shared.log.database import Database
from shared.log.migration import migrate
from shared.log.position import Position
from shared.log.service_store import ServiceStore
from shared.log.snapshot import pack_in_child
from shared.log.writer import LogWriter

TEAMS, QUOTAS_OF_A_TEAM = 20, 10
AFTER_SNAPSHOT = 5_000
"""Events behind the newest snapshot: a service takes one each minute, a busy cluster has 80 events a second."""

STEP = 5 * WAVE
"""Observations of one step: a wave of pods on its way."""

DAY_NS = 24 * 3600 * SECOND
_REQUEST = {"cpu": 500, "memory": 512 * 2**20}
_MEMBER = PodSpec(
    scheduler_name="koord-scheduler",
    containers=(Container(name="main", resources=ResourceRequirements(requests={"cpu": "4", "memory": "1Gi"})),),
)
_PLUGINS = ("LoadAwareScheduling", "NodeResourcesFit", "NodeResourcesBalancedAllocation", "TaintToleration")


class _System:
    """The writers of five contexts, and the States of the ledger and of the scheduler.

    Attributes:
        written: events of all contexts so far.
    """

    def __init__(self, database: Database) -> None:
        self.written = 0
        self._settings = LedgerSettings()
        self.state = self._settings.new_state()
        self.scheduler = SchedulerState()
        self._database = database
        self._writers: dict[str, LogWriter] = {}
        self._cycle = 0

    async def begin(self, now_ns: int) -> None:
        """Takes the locks and writes what each service writes at its start."""
        emits: dict[str, Iterable[type[Event]]] = {
            "quota": SERVICE.emits,
            "scheduling": (ConfigApplied, PodPlaced, GangPlaced),
        }
        for context in ("cluster", "scheduling", "quota", "slo", "nodes-0"):
            writer = LogWriter(self._database, None, context, f"bench {context}", lambda *_: None)
            await writer.acquire()
            self._writers[context] = writer
            await writer.begin("bench", tuple(emits.get(context, ())), now_ns=now_ns, seen={})
            self.written += 1
        text = self._settings.text()
        await self.append("quota", [Draft(ConfigApplied(source="environment", digest="0", text=text))], now_ns)
        await self.append(
            "cluster", [Draft(event) for event in (*_quota_objects(), InitialListCompleted(objects=0))], now_ns
        )

    async def append(self, context: str, drafts: list[Draft], now_ns: int) -> None:
        """Appends to a context and folds what the ledger follows of it."""
        for record in await self._writers[context].append(drafts, now_ns=now_ns):
            if isinstance(record.event, FOLDED.get(context, ())):
                self.state.apply(record)
            if isinstance(record.event, FOLDED_BY_SCHEDULER.get(context, ())):
                self.scheduler.apply(record)
        self.written += len(drafts)

    async def step(self, number: int, now_ns: int) -> None:
        """Appends a wave of pods, its placements, and what follows from them."""
        observed = [Draft(_with_quota(draft.event)) for draft in history(number * STEP, STEP)]
        waiting = [
            each.event for each in observed
            if isinstance(each.event, PodObserved) and not each.event.object.spec.node_name
        ]  # fmt: skip
        await self.append("cluster", observed, now_ns)
        await self.append("scheduling", self._placements(waiting), now_ns)
        while drafts := structure(self.state, self._settings) or postings(self.state) or runtimes(self.state):
            await self.append("quota", drafts, now_ns)
        reported = [each.event.node for each in observed if isinstance(each.event, NodeMetricObserved)]
        await self.append("slo", [Draft(_overcommitted(node, now_ns)) for node in reported], now_ns)
        await self.append("nodes-0", [Draft(_suppressed(node, number, now_ns)) for node in reported], now_ns)

    async def gangs(self, now_ns: int) -> None:
        """Appends the waits of as many gangs as an estimate reads, and a gang that waits."""
        waits = [
            GangPlaced(
                gang=f"shop/gang-{number}",
                cycle=0,
                waited_ns=number * SECOND,
                pods=4,
                request={"cpu": 4000 << number % 5, "memory": 2**30},
                quota=f"team-{number % TEAMS}-0",
            )
            for number in range(KEPT)
        ]
        await self.append("scheduling", list(map(Draft, waits)), now_ns)
        metadata = Metadata(name="g", namespace="shop", annotations={NAME: "train", MINIMUM: "4"})
        members = [
            Pod(metadata=replace(metadata, name=f"train-{number}", uid=f"train-{number}"), spec=_MEMBER)
            for number in range(4)
        ]
        observed = [PodObserved(pod=pod.metadata.key, pod_uid=pod.metadata.uid, object=pod) for pod in members]
        await self.append("cluster", list(map(Draft, observed)), now_ns)

    async def snapshot(self) -> None:
        """Writes snapshots as the ledger and the scheduler do."""
        for name, state in ((SERVICE.manifest.name, self.state), (SCHEDULER.name, self.scheduler)):
            heads = {context: self._writers[context].head for context in FOLDED}
            positions = {context: Position(head.seq, head.digest) for context, head in heads.items()}
            state.positions.update({context: head.seq for context, head in positions.items()})
            digest, packed = await pack_in_child(state)
            store = ServiceStore(self._database, name)
            await store.write_snapshot(positions, state.SCHEMA, "bench", packed, digest)

    async def close(self) -> None:
        """Releases the locks."""
        for writer in self._writers.values():
            await writer.close()

    def _placements(self, waiting: list[PodObserved]) -> list[Draft]:
        self._cycle += 1
        nodes = [f"node-{int(event.pod.rpartition('-')[2]) % NODES:04}" for event in waiting]
        best = tuple(Candidate(node, 320, dict.fromkeys(_PLUGINS, 80)) for node in nodes[:3])
        decided = CycleDecided(
            cycle=self._cycle,
            pods=tuple(PodOutcome(event.pod_uid, 0, node) for event, node in zip(waiting, nodes, strict=True)),
            classes=(ClassEvaluated(nodes=NODES, feasible=NODES, best=best),),
        )
        placed = [
            PodPlaced(pod_uid=event.pod_uid, pod=event.pod, node=node, cycle=self._cycle, request=_REQUEST, score=320)
            for event, node in zip(waiting, nodes, strict=True)
        ]
        return [Draft(decided), *map(Draft, placed)]


async def make_log(postgres: str, events: int, progress: Callable[[int], None]) -> None:
    """Migrates an empty database and fills it with at least so many events, as of the 24 hours before now."""
    database = Database(postgres)
    try:
        await migrate(database, contexts())
        system = _System(database)
        now_ns = time.time_ns() - DAY_NS
        ns_per_event = DAY_NS // events
        await system.begin(now_ns)
        number, has_snapshot = 0, False
        while system.written < events:
            if not number:
                await system.gangs(now_ns)
            if not has_snapshot and system.written >= events - AFTER_SNAPSHOT:
                await system.snapshot()
                has_snapshot = True
            before = system.written
            await system.step(number, now_ns)
            now_ns += (system.written - before) * ns_per_event
            number += 1
            progress(system.written - before)
        await system.close()
    finally:
        await database.close()


def _quota_objects() -> Iterable[Event]:
    for team in range(TEAMS):
        yield _quota_object(f"team-{team}", "", 100 * QUOTAS_OF_A_TEAM)
        for number in range(QUOTAS_OF_A_TEAM):
            yield _quota_object(f"team-{team}-{number}", f"team-{team}", 100)


def _quota_object(name: str, parent: str, cpu: int) -> ObjectObserved:
    labels = {"quota.scheduling.koordinator.sh/is-parent": "false" if parent else "true"}
    if parent:
        labels["quota.scheduling.koordinator.sh/parent"] = parent
    amounts = {"cpu": str(cpu), "memory": f"{cpu * 4}Gi"}
    metadata = {"name": name, "namespace": "shop", "uid": f"quota-{name}", "labels": labels}
    spec = {"min": {"cpu": str(cpu // 10), "memory": f"{cpu // 2}Gi"}, "max": amounts}
    return ObjectObserved(
        resource=RESOURCES[0],
        name=f"shop/{name}",
        uid=f"quota-{name}",
        object={"apiVersion": "scheduling.sigs.k8s.io/v1alpha1", "kind": "ElasticQuota", "metadata": metadata, "spec": spec},
    )  # fmt: skip


def _with_quota(event: Event) -> Event:
    """Labels a pod with the quota of its number."""
    if not isinstance(event, PodObserved):
        return event
    number = int(event.pod.rpartition("-")[2]) % (TEAMS * QUOTAS_OF_A_TEAM)
    quota = f"team-{number // QUOTAS_OF_A_TEAM}-{number % QUOTAS_OF_A_TEAM}"
    pod = event.object
    labels = {**(pod.metadata.labels or {}), QUOTA_NAME: quota}
    return replace(event, object=replace(pod, metadata=replace(pod.metadata, labels=labels)))


def _overcommitted(node: str, now_ns: int) -> NodeOvercommitted:
    cpu = OvercommitBreakdown(
        capacity=32_000, margin=11_200, system=800, reserved=0, pods=6_000, policy="usage", left=14_000,
        amplified=14_000, amount=14_000,
    )  # fmt: skip
    return NodeOvercommitted(
        node=node, report_ns=now_ns, decided_ns=now_ns, why="changed", source="NodeMetric", batch_cpu=cpu,
        amounts={"kubernetes.io/batch-cpu": "14000"},
    )  # fmt: skip


def _suppressed(node: str, number: int, now_ns: int) -> BestEffortSuppressed:
    cpu = 4_000 + number % 8 * 1_000
    return BestEffortSuppressed(
        node=node,
        boot="bench",
        number=number + 1,
        at_ns=now_ns,
        policy="cpuset",
        cpu_milli=cpu,
        cpus=f"0-{cpu // 1000 - 1}",
    )
