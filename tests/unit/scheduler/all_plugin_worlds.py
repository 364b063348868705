"""Random clusters in which every plugin has something to do, and the transactions of cycles on them."""

from collections.abc import Sequence
from random import Random
from typing import Any

import msgspec

from services.scheduler.cycle.transaction import CycleTransaction
from services.scheduler.state.pod_scheduling_record import Assignment, PodRecord
from shared.domain.interference import INTERFERED
from shared.domain.qos import LABEL as QOS_LABEL
from shared.events.cluster import ObjectObserved
from shared.kube.node import PodUsage, ResourceMap, Taint
from shared.kube.pod import (
    Affinity,
    ClaimSource,
    GoogleDisk,
    Pod,
    PodAffinity,
    PodAffinityTerm,
    Toleration,
    TopologySpreadConstraint,
    Volume,
    WeightedPodAffinityTerm,
)
from shared.kube.selectors import LabelSelector
from shared.kube.system_annotations import RESERVATION_ALLOCATED
from tests.support.numa_machines import BIND_LABEL, NUMA_LABEL, bound_pod, holding_pod, machine, reported
from tests.support.reservations import available, reservation
from tests.support.reservations import observe as observe_reservation
from tests.support.scheduling_world import World, metric, node, pod, thresholds, use

HOST = "kubernetes.io/hostname"
APPS = ("a", "b", "c")
DRIVER = "csi.x"
GPU = "nvidia.com/gpu"
_RESOURCE_SCORES = {
    "NodeResourcesFitPlus": f"""\
      resources:
        cpu: {{type: MostAllocated, weight: 1}}
        {GPU}: {{type: LeastAllocated, weight: 2}}
""",
    "ScarceResourceAvoidance": f"      resources: [{GPU}]\n",
}
_NOT_BY_DEFAULT = (*_RESOURCE_SCORES, "InterferenceAvoidance")
CLAIMS = 12
"""Number of bound claims, of which the first is ReadWriteOncePod."""


def random_world(random: Random, nodes: int, running: int, waiting: int) -> World:
    """Nodes with zones, ports, volumes, NUMA zones and load; running pods; waiting pods of some templates."""
    world = World(believes_annotations=True)
    use(world, with_resource_scores(thresholds(random.choice((45, 65)), 95)))
    _add_volumes(world, random, nodes)
    is_numa = [random.random() < 0.3 for _ in range(nodes)]
    for number in range(nodes):
        _add_node(world, random, number, numa=is_numa[number])
    templates = [_template(random, f"t{number}") for number in range(6)]
    for number in range(running):
        on = random.randrange(nodes)
        name = f"r{number:04}"
        if is_numa[on] and random.random() < 0.6:
            holding = holding_pod(name, random.choice(("0-1", "2-3", "8-9")), f"n{on:04}")
            world.add_pod(_prioritised(holding, 5))
        else:
            priority = random.choice((None, 5, 50))
            world.add_pod(_prioritised(_named(random.choice(templates), name, f"n{on:04}"), priority))
    for number in range(waiting):
        world.add_pod(_named(random.choice(templates), f"w{number:04}"))
    fork = Random()
    fork.setstate(random.getstate())
    _add_reservations(world, fork, nodes, running)
    world.read()
    return world


def _add_reservations(world: World, random: Random, nodes: int, running: int) -> None:
    """Available and pending Reservations; some running pods use one."""
    for number in range(random.randrange(6)):
        name, on = f"v{number}", f"n{random.randrange(nodes):04}"
        owner = random.choice(
            ({"labelSelector": {"matchLabels": {"app": random.choice(APPS)}}}, {"object": {"name": "w0001"}})
        )
        spec: dict[str, Any] = {
            "allocateOnce": random.random() < 0.5,
            "allocatePolicy": random.choice(("", "Aligned", "Restricted")),
        }
        labels = {"scheduling.koordinator.sh/reservation-order": str(random.randrange(3))}
        body = reservation(
            name, random.choice(("500m", "2", "3")), owners=[owner], metadata={"labels": labels}, **spec
        )  # fmt: skip
        if random.random() < 0.3:
            observe_reservation(world, body)
            continue
        available(world, body, on)
        if random.random() < 0.4:
            mark = {RESERVATION_ALLOCATED: f'{{"name":"{name}","uid":"r-{name}"}}'}
            cpu = random.choice(("200m", "1"))
            world.add_pod(pod(f"o{number}", cpu=cpu, on=on, phase="Running", annotations=mark, priority=5))


def with_resource_scores(text: str) -> str:
    """Adds the scores that are not in the default profile to a configuration."""
    scored = "    score:\n      enabled:\n"
    added = "".join(f"      - name: {name}\n        weight: 1\n" for name in _NOT_BY_DEFAULT)
    arguments = "".join(f"  - name: {name}\n    args:\n{args}" for name, args in _RESOURCE_SCORES.items())
    assert text.count(scored) == text.count("  pluginConfig:\n") == 1
    return text.replace(scored, scored + added).replace("  pluginConfig:\n", "  pluginConfig:\n" + arguments)


def _add_node(world: World, random: Random, number: int, *, numa: bool) -> None:
    name = f"n{number:04}"
    labels = {HOST: name, "zone": f"z{random.randrange(3)}"}
    if number % 4 == 1:
        labels[INTERFERED] = "true"
    if random.random() < 0.2:
        del labels["zone"]
    extra = {GPU: str(random.randrange(1, 4))} if not number or random.random() < 0.3 else {}
    if numa:
        labels |= random.choice(({}, {NUMA_LABEL: "SingleNUMANode"}, {BIND_LABEL: "FullPCPUsOnly"}))
        world.observe(reported(name))
        world.add_node(machine(name, labels=labels, extra=extra))
    else:
        taints = (Taint(key="team", value="a", effect="PreferNoSchedule"),) if random.random() < 0.3 else ()
        cpu, pods = random.choice(("2", "4", "16")), random.choice(("3", "110", "110"))
        world.add_node(node(name, cpu=cpu, memory="16Gi", pods=pods, labels=labels, taints=taints, extra=extra))
    if random.random() < 0.7:
        known = [
            PodUsage(name=f"w{random.randrange(40):04}", namespace="d", pod_usage=ResourceMap(resources={"cpu": "1"}))
            for _ in range(random.randrange(3))
        ]
        world.report(metric(name, cpu=f"{random.randrange(100, 1500)}m", pods=known))


def _add_volumes(world: World, random: Random, nodes: int) -> None:
    for number in range(CLAIMS):
        pv: dict[str, Any] = {
            "capacity": {"storage": "1Gi"},
            "accessModes": ["ReadWriteOnce"],
            "csi": {"driver": DRIVER, "volumeHandle": f"h{number}"},
        }
        if number % 3 == 0:
            term = {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["z0", "z1"]}]}
            pv["nodeAffinity"] = {"required": {"nodeSelectorTerms": [term]}}
        _observe(world, "persistentvolumes", f"pv{number}", spec=pv, status={"phase": "Bound"})
        modes = ["ReadWriteOncePod" if number == 0 else "ReadWriteOnce"]
        claim = {"accessModes": modes, "volumeName": f"pv{number}", "resources": {"requests": {"storage": "1Gi"}}}
        annotations = {"pv.kubernetes.io/bind-completed": "yes"}
        _observe(world, "persistentvolumeclaims", f"d/c{number}", annotations, spec=claim, status={"phase": "Bound"})
    for number in range(0, nodes, 2):
        drivers = [{"name": DRIVER, "nodeID": "x", "allocatable": {"count": random.choice((1, 2))}}]
        _observe(world, "csinodes.storage.k8s.io", f"n{number:04}", spec={"drivers": drivers})


def _observe(world: World, resource: str, key: str, annotations: dict[str, str] | None = None, **body: Any) -> None:
    namespace, _, name = key.rpartition("/")
    metadata = {"name": name, "uid": name, "annotations": annotations or {}}
    metadata |= {"namespace": namespace} if namespace else {}
    world.observe(ObjectObserved(resource=resource, name=key, uid=name, object={"metadata": metadata, **body}))


def _template(random: Random, name: str) -> Pod:
    """A pod; most templates have one or two requirements of their own."""
    if random.random() < 0.3:
        cpus = random.choice((2, 4))
        return bound_pod(name, cpus, random.choice(("", "FullPCPUs")), required=random.random() < 0.5, priority=9500)
    made = pod(
        name,
        cpu=random.choice(("100m", "500m", "2")),
        priority=random.choice((None, None, 9500)),
        labels={"app": random.choice(APPS)} | ({QOS_LABEL: "BE"} if name in {"t1", "t4"} else {}),
        affinity=_affinity(random) if random.random() < 0.4 else None,
        tolerations=(Toleration(key="team", operator="Exists"),) if random.random() < 0.3 else (),
        ports=(random.choice((80, 443)),) if random.random() < 0.3 else (),
        extra={GPU: "1"} if random.random() < 0.2 else None,
    )
    spread = (_spread(random),) if random.random() < 0.4 else ()
    volumes: list[Volume] = []
    if random.random() < 0.4:
        claims = random.sample(range(CLAIMS), 2)
        volumes += [Volume(name=f"v{n}", persistent_volume_claim=ClaimSource(claim_name=f"c{n}")) for n in claims]
    if random.random() < 0.2:
        volumes.append(Volume(name="g", gce_persistent_disk=GoogleDisk(pd_name="disk")))
    spec = msgspec.structs.replace(made.spec, topology_spread_constraints=spread, volumes=tuple(volumes))
    return msgspec.structs.replace(made, spec=spec)


def _selector(random: Random) -> LabelSelector:
    return LabelSelector(match_labels={"app": random.choice(APPS)})


def _affinity(random: Random) -> Affinity:
    def terms() -> PodAffinity:
        term = PodAffinityTerm(topology_key=random.choice(("zone", HOST)), label_selector=_selector(random))
        if random.random() < 0.5:
            return PodAffinity(required=(term,))
        return PodAffinity(
            preferred=(WeightedPodAffinityTerm(weight=random.randrange(1, 100), pod_affinity_term=term),)
        )

    return random.choice(
        (Affinity(pod_affinity=terms()), Affinity(pod_anti_affinity=terms()), Affinity(pod_anti_affinity=terms()))
    )


def _spread(random: Random) -> TopologySpreadConstraint:
    return TopologySpreadConstraint(
        max_skew=random.randrange(1, 4),
        topology_key=random.choice(("zone", HOST)),
        when_unsatisfiable=random.choice(("DoNotSchedule", "ScheduleAnyway")),
        label_selector=_selector(random),
    )


def _named(template: Pod, name: str, on: str = "") -> Pod:
    metadata = msgspec.structs.replace(template.metadata, name=name, uid=name)
    spec = msgspec.structs.replace(template.spec, node_name=on)
    status = msgspec.structs.replace(template.status, phase="Running" if on else "Pending")
    return msgspec.structs.replace(template, metadata=metadata, spec=spec, status=status)


def _prioritised(made: Pod, priority: int | None) -> Pod:
    return msgspec.structs.replace(made, spec=msgspec.structs.replace(made.spec, priority=priority))


def random_overlay(random: Random, nodes: int) -> tuple[list[int], dict[str, list[int]]]:
    """Some rows, and amounts to add to their capacity; some take more than is there."""
    rows = random.sample(range(nodes), random.randrange(1, min(nodes, 5) + 1))
    deltas = {
        "cpu": [random.choice((-16000, -1500, 0, 300, 4000)) for _ in rows],
        "memory": [random.choice((-64, -1, 0, 8)) << 30 for _ in rows],
        GPU: [random.randrange(-2, 3) for _ in rows],
        "pods": [random.choice((-3, 0, 1, 30)) for _ in rows],
    }
    return rows, {name: sizes for name, sizes in deltas.items() if name == "cpu" or random.random() < 0.5}


class RandomSteps:
    """A transaction on a world, with random steps.

    Attributes:
        transaction: the transaction.
        classes: the classes of the waiting pods.
        evaluations: those that follow the steps.
        running: (row, pod) of the pods that run and are not removed.
    """

    def __init__(self, world: World, random: Random) -> None:
        cache = world.indexed()
        cache.settle()
        self._random = random
        self.transaction = CycleTransaction(cache, world.now_ns)
        self._waiting = [record for record in world.view.pods.values() if not record.node and record.pod_class]
        self.running = [
            (row, each) for row, there in cache.on.items() for each in there.values() if not each.pod_class.reserves
        ]
        self._removed: list[tuple[int, Assignment]] = []
        self.classes = list(dict.fromkeys(each.pod_class for each in self._waiting if each.pod_class is not None))
        self.profiles = {each: cache.profiles[each.scheduler] for each in self.classes}
        self.evaluations = {each: self._new(each) for each in self.classes if random.random() < 0.7}

    def _new(self, pod_class: Any) -> Any:
        evaluation = self.transaction.evaluation(self.profiles[pod_class], pod_class)
        if self._random.random() < 0.5:
            evaluation.look_ahead(self.transaction.snapshot)
        return evaluation

    def take(self, steps: int, depth: int = 0) -> None:
        """Takes so many random steps, some of which are undone again."""
        for _ in range(steps):
            kind = self._random.random()
            if kind < 0.4:
                self._place()
            elif kind < 0.5:
                self._place_run()
            elif kind < 0.6:
                self.transaction.overlay(*random_overlay(self._random, self.transaction.snapshot.size))
            elif kind < 0.75 and self.running:
                row, assignment = self.running.pop(self._random.randrange(len(self.running)))
                self.transaction.remove(assignment, row)
                self._removed.append((row, assignment))
            elif kind < 0.85 and self._removed:
                row, assignment = self._removed.pop(self._random.randrange(len(self._removed)))
                self.transaction.put_back(assignment, row)
                self.running.append((row, assignment))
            elif depth < 2:
                self.undone(self._random.randrange(1, 6), depth + 1)

    def undone(self, steps: int, depth: int = 1) -> None:
        """Takes random steps and undoes them."""
        running, removed, mark = list(self.running), list(self._removed), self.transaction.mark()
        self.take(steps, depth)
        self.transaction.undo(mark)
        self.running, self._removed = running, removed

    def _evaluation(self) -> Any:
        pod_class = self._random.choice(self.classes)
        if pod_class not in self.evaluations:
            self.evaluations[pod_class] = self._new(pod_class)
        evaluation = self.evaluations[pod_class]
        self.transaction.focus(self.profiles[pod_class], pod_class)
        evaluation.catch_up()
        return evaluation

    def _place(self) -> None:
        evaluation = self._evaluation()
        feasible = evaluation.feasible()
        if not len(feasible):
            return
        row = int(self._random.choice(feasible.tolist()))
        allocation = self.transaction.reserve(evaluation, row)
        if allocation is not None:
            self.transaction.place(self._pod(evaluation.pod_class), evaluation.pod_class, row, allocation)
        else:  # the filters admit the node, so a fresh evaluation does not have it as rejected
            del self.evaluations[evaluation.pod_class]

    def _place_run(self) -> None:
        evaluation = self._evaluation()
        rows = self._random.sample(evaluation.feasible().tolist(), min(len(evaluation.feasible()), 4))
        if rows and not evaluation.reserves:
            pods = [self._pod(evaluation.pod_class) for _ in rows]
            self.transaction.place_all(pods, evaluation.pod_class, rows)

    def _pod(self, pod_class: Any) -> PodRecord:
        pods: Sequence[PodRecord] = [each for each in self._waiting if each.pod_class is pod_class]
        return self._random.choice(pods)
