"""Places the pods of a unit in one network domain, as its gang wishes.

How many of the pods each node can take follows from its free amounts; the domain is chosen by these numbers
(`network_domain_choice`), and the pods are placed there. Where other filters may admit fewer pods than there is
capacity for, each placement is checked, and a node that takes fewer changes the choice.

All waiting pods of the unit are placed where one domain can take them; else as many as one can, at least those that
are needed. Pods return to the domain of members that have a node already.

Source: spec/scheduler-workloads.md 2.6.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import NamedTuple

import numpy as np

from services.scheduler.cache.network_domains import NetworkDomains
from services.scheduler.cache.pods_with_network_selector import network_selector, pods_with_network_selector
from services.scheduler.cache.tie_break import name_hash
from services.scheduler.cycle.cycle_inputs import CycleInputs
from services.scheduler.cycle.evaluation_records_shared_by_class import EvaluatedClass
from services.scheduler.cycle.network_domain_choice import Choice, DomainChoice, Wish, wish_of
from services.scheduler.cycle.pod_placement import PodPlacement
from services.scheduler.cycle.result_of_unit_placement import UnitAttempt
from services.scheduler.framework.gang_grouping_interface import Gathering, Requirement
from services.scheduler.framework.reasons import NETWORK_DOMAIN_TOO_SMALL, NETWORK_TOPOLOGY_UNKNOWN
from services.scheduler.kernels.array_types_and_row_selection import Int64
from services.scheduler.kernels.merge_and_select_nodes import FEASIBLE
from services.scheduler.queue.units import Unit, class_of
from services.scheduler.state.pod_equivalence_class import PodClass
from services.scheduler.state.pod_scheduling_record import PodRecord
from shared.domain.network_topology import NO_INDEX
from shared.events.scheduling import ClassEvaluated, Rejections

MAX_CHOICES = 64
"""Maximum number of domains that are tried for a unit in one cycle: it must not block the service."""


class _Tried(NamedTuple):
    """A unit with what its placement needs.

    Attributes:
        unit: its number in the cycle.
        needed: uids of the pods that the unit needs; the others are units of their own.
        classes: of its pods, evaluated.
        is_exact: the free amounts alone decide how many of the pods a node takes.
        within: the only domain of the required layer that may be used; None for all.
    """

    unit: int
    needed: frozenset[str]
    classes: dict[PodClass, EvaluatedClass]
    is_exact: bool
    domains: NetworkDomains
    within: int | None


class NetworkDomainPlacement:
    """The steps of a cycle for units that gather in network domains."""

    def __init__(self, pods: PodPlacement, cache: CycleInputs) -> None:
        self._pods = pods
        self._cache = cache

    def attempt(self, unit: Unit, requirement: Requirement, gathering: Gathering, number: int) -> UnitAttempt:
        """Places pods of a unit in one domain; none where no domain can hold those that are needed.

        Args:
            number: of the unit in the cycle.
        """
        plugin = unit.group.plugin if unit.group is not None else ""
        pods = in_order(unit.pods, gathering)
        network = self._cache.cluster_objects.network
        domains = network.domains(self._cache.table)
        if domains is None:
            return self._refused(pods[0], plugin, NETWORK_TOPOLOGY_UNKNOWN, network.problem)
        wish = wish_of(gathering.spec, domains)
        if isinstance(wish, str):
            words = f"the ClusterNetworkTopology has no layer {wish}"
            return self._refused(pods[0], plugin, NETWORK_TOPOLOGY_UNKNOWN, words)
        for pod in pods:
            if pod.pod_class is None or pod.pod_class.fault:
                return _failed(pod, self._pods.unreadable())
        return self._gathered(pods, requirement, gathering, domains, wish, plugin, number)

    def _gathered(
        self,
        pods: Sequence[PodRecord],
        requirement: Requirement,
        gathering: Gathering,
        domains: NetworkDomains,
        wish: Wish,
        plugin: str,
        number: int,
    ) -> UnitAttempt:
        needed = needed_uids(pods, requirement)
        classes = {class_: self._evaluated(class_) for class_ in dict.fromkeys(map(class_of, pods))}
        for class_ in classes.values() if self._pods.starts.plans else ():
            self._pods.starts.close(class_.evaluation, pods[0])
        home = self.home(domains, wish, gathering)
        is_exact = len(classes) == 1 and all(self._is_exact(class_, each) for class_, each in classes.items())
        tried = _Tried(number, needed, classes, is_exact, domains, home)
        slots = self._slots(pods, classes)[domains.rows]
        scores = classes[class_of(pods[0])].evaluation.total[domains.rows]
        choice = DomainChoice(domains, wish, slots, self._related(pods[0], gathering, domains), scores)
        domain, most = choice.largest(home)
        attempt = UnitAttempt()
        for count in dict.fromkeys((len(pods), min(most, len(pods)), len(needed))):
            if not max(len(needed), 1) <= count <= most:
                continue
            chosen = _subset(pods, needed, count)
            if self._placed(chosen, choice, tried, attempt):
                if len(chosen) < len(pods):
                    found = self._too_small(pods[0], tried, plugin, wish, len(pods), domains.title(*domain), most)
                    placed = {pod.uid for pod in chosen}
                    attempt.failed += [(pod, found) for pod in pods if pod.uid not in placed]
                return attempt
        found = self._too_small(
            pods[0],
            tried,
            plugin,
            wish,
            max(len(needed), 1),
            domains.title(*domain) if domains.count(wish.must) else "",
            most,
        )
        if needed:
            attempt = _failed(pods[0], found)
            attempt.placed = min(most, len(pods) - 1)
        else:
            attempt.failed = [(pod, found) for pod in pods]
        return attempt

    def home(self, domains: NetworkDomains, wish: Wish, gathering: Gathering) -> int | None:
        """Returns the domain of the required layer to which the pods of a gang return; None where it has none yet."""
        return _home(domains, wish, self._rows(gathering.nodes))

    # evaluation

    def _evaluated(self, pod_class: PodClass) -> EvaluatedClass:
        """Returns a class with its present evaluation."""
        self._pods.count_nominated_before(pod_class)
        self._pods.transaction.focus(self._pods.profile(pod_class), pod_class)
        class_ = self._pods.class_of(pod_class, looks_ahead=False)
        class_.evaluation.catch_up()
        return class_

    def _is_exact(self, pod_class: PodClass, class_: EvaluatedClass) -> bool:
        """Returns True where, of pods of the class, a node takes as many as its free amounts allow."""
        if class_.is_prepared or class_.evaluation.reserves or pod_class.ports:
            return False
        active, every = self._pods.active_of(pod_class), slice(0, self._pods.transaction.snapshot.size)
        filters = (*active.moving, *active.cross_node_filters)
        return all(state.filter(pod_class, every) is None for _, _, state in filters)

    def _slots(self, pods: Sequence[PodRecord], classes: dict[PodClass, EvaluatedClass]) -> Int64:
        """Returns [rows]: how many of the pods the free amounts of each node allow, taken in their order; a pod that
        does not fit is passed over.
        """
        snapshot = self._pods.transaction.snapshot
        size = snapshot.size
        left_pods = snapshot.allowed_pods[:size] - snapshot.pods
        left: dict[int, Int64] = {}
        slots = np.zeros(size, np.int64)
        for pod_class, run in groupby(pods, class_of):
            desired = len(list(run))
            self._pods.transaction.focus(self._pods.profile(pod_class), pod_class)
            term = self._pods.active_of(pod_class).fit_term(pod_class)
            sizes = {} if term is None else dict(zip(term[1].resources.tolist(), term[1].sizes.tolist(), strict=True))
            taken = np.minimum(left_pods, desired) if term is not None else np.full(size, desired, np.int64)
            for column, amount in sizes.items():
                if column >= snapshot.requested.shape[1]:
                    continue  # no node has it, and none is feasible
                if column not in left:
                    left[column] = snapshot.allocatable[:size, column] - snapshot.requested[:, column]
                taken = np.minimum(taken, left[column] // amount)
            taken = np.where(classes[pod_class].evaluation.by == FEASIBLE, np.maximum(taken, 0), 0)
            if pod_class.ports:
                taken = np.minimum(taken, 1)
            slots += taken
            if len(classes) > 1:
                left_pods = left_pods - taken
                for column, amount in sizes.items():
                    if column in left:
                        left[column] = left[column] - taken * amount
        return slots

    def _related(self, pod: PodRecord, gathering: Gathering, domains: NetworkDomains) -> Int64 | None:
        """Returns [nodes]: the members that a node has, and the pods with the selector of the first pod; None without
        any.
        """
        rows = Counter(self._rows(gathering.nodes))
        if selector := network_selector(class_of(pod)):
            rows.update(pods_with_network_selector(self._pods.transaction.snapshot, selector))
        if not rows:
            return None
        related = np.zeros(self._cache.table.size, np.int64)
        related[list(rows)] = list(rows.values())
        return related[domains.rows]

    def _rows(self, nodes: Sequence[str]) -> list[int]:
        rows = self._cache.table.rows
        return [rows[node] for node in nodes if node in rows]

    # placement

    def _placed(self, pods: Sequence[PodRecord], choice: DomainChoice, tried: _Tried, attempt: UnitAttempt) -> bool:
        """Places the pods in the best domain that admits them; False without one, or after MAX_CHOICES of them."""
        for _ in range(MAX_CHOICES):
            found = choice.choose(len(pods), tried.within)
            if found is None:
                return False
            mark = self._pods.mark()
            attempt.is_prepared = False
            if self._dealt(pods, found, choice, tried, attempt):
                attempt.placed = len(pods)
                return True
            self._pods.undo(mark, pods)
        return False

    def _dealt(
        self, pods: Sequence[PodRecord], found: Choice, choice: DomainChoice, tried: _Tried, attempt: UnitAttempt
    ) -> bool:
        """Places the pods on the nodes of a domain; returns False, and notes in the choice what it did not admit, where
        one fits on none of its nodes.
        """
        left = [share.pods for share in found.shares]
        rows = tried.domains.rows
        first = 0
        for pod in pods:
            while not left[first]:
                first += 1
            for place in range(first, len(left)):
                row = int(rows[found.shares[place].place])
                if left[place] and self._place(pod, row, tried, attempt):
                    left[place] -= 1
                    break
                if len(tried.classes) == 1:
                    choice.limit(found.shares[place].place, found.shares[place].pods - left[place])
                    return False
            else:
                choice.close(found.domain)
                return False
        return True

    def _place(self, pod: PodRecord, row: int, tried: _Tried, attempt: UnitAttempt) -> bool:
        pod_class = class_of(pod)
        class_, transaction = tried.classes[pod_class], self._pods.transaction
        evaluation = class_.evaluation
        allocation: dict[str, str] = {}
        if not tried.is_exact:
            if not transaction.fits(evaluation.profile, pod_class, row):
                return False
            reserved = transaction.reserve(evaluation, row) if evaluation.reserves else {}
            if reserved is None:
                return False
            allocation = reserved
        self._pods.record_evaluation(class_, row, name_hash(pod.uid))
        preparation = self._pods.prepare(pod_class, row, evaluation.profile) if class_.is_prepared else None
        attempt.is_prepared |= preparation is not None
        unit = tried.unit if pod.uid in tried.needed else 0
        score = max(int(evaluation.total[row]), 0)
        self._pods.place(pod, pod_class, row, score, class_.recorded_at, allocation, unit=unit, preparation=preparation)
        return True

    # refusal

    def _refused(self, pod: PodRecord, plugin: str, code: str, detail: str) -> UnitAttempt:
        nodes = self._pods.alive()
        rejected = Rejections(plugin=plugin, code=code, nodes=nodes, detail=detail)
        return _failed(pod, ClassEvaluated(nodes=nodes, feasible=0, rejected=(rejected,)))

    def _too_small(
        self, pod: PodRecord, tried: _Tried, plugin: str, wish: Wish, count: int, nearest: str, most: int
    ) -> ClassEvaluated:
        """Returns the evaluation of a class with the nodes of domains that are too small as rejected."""
        found = tried.classes[class_of(pod)].evaluation.record(name_hash(pod.uid))
        where = "the nearest is" if tried.within is None else "its gang is in"
        layer = tried.domains.layers[wish.must]
        detail = f"{layer} with capacity for {count} pods: {where} {nearest} with {most}"
        multiples = [
            f"{name} by {multiple}"
            for name, multiple in zip(tried.domains.layers, wish.multiples, strict=True)
            if multiple > 1
        ]
        if multiples:
            detail += f", counted by multiples ({', '.join(multiples)})"
        rejected = Rejections(plugin=plugin, code=NETWORK_DOMAIN_TOO_SMALL, nodes=found.feasible, detail=detail)
        return ClassEvaluated(nodes=found.nodes, feasible=0, rejected=(*found.rejected, rejected))


def _failed(pod: PodRecord, found: ClassEvaluated) -> UnitAttempt:
    attempt = UnitAttempt()
    attempt.is_complete = False
    attempt.failed.append((pod, found))
    return attempt


def in_order(pods: Sequence[PodRecord], gathering: Gathering | None) -> list[PodRecord]:
    """Returns pods in the order in which they are dealt to nodes: by index, those without one last, by name; as they are
    where they do not gather.
    """
    if gathering is None:
        return list(pods)
    order = gathering.order
    return sorted(pods, key=lambda pod: (order[pod.uid] == NO_INDEX, order[pod.uid], pod.name, pod.uid))


def needed_uids(pods: Sequence[PodRecord], requirement: Requirement) -> frozenset[str]:
    """Returns the uids of the first pods of each part, as many as it needs."""
    left = Counter(requirement.needed)
    found = []
    for pod in pods:
        part = requirement.part_of.get(pod.uid, "")
        if left[part] > 0:
            left[part] -= 1
            found.append(pod.uid)
    return frozenset(found)


def _subset(pods: Sequence[PodRecord], needed: frozenset[str], count: int) -> Sequence[PodRecord]:
    """Returns a number of pods in their order: those that are needed, and the first of the others."""
    if count == len(pods):
        return pods
    return list(_up_to(pods, needed, count - len(needed)))


def _up_to(pods: Sequence[PodRecord], needed: frozenset[str], others: int) -> Iterator[PodRecord]:
    for pod in pods:
        if pod.uid in needed:
            yield pod
        elif others:
            others -= 1
            yield pod


def _home(domains: NetworkDomains, wish: Wish, rows: Sequence[int]) -> int | None:
    """Returns the domain of the required layer with the most of these nodes, the first by name among equals; None
    without a required layer, or without such a node in the tree.
    """
    if not wish.must or not rows:
        return None
    of_rows = np.bincount(np.array(rows, np.intp), minlength=int(domains.rows.max(initial=-1)) + 1)
    counts: Int64 = of_rows[domains.rows]
    for layer in range(len(domains.layers) - 2, wish.must - 1, -1):
        counts = domains.sums(counts, layer)
    most = np.flatnonzero(counts == counts.max(initial=1))
    return int(most[domains.ranks[wish.must][most].argmin()]) if len(most) else None
