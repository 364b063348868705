"""Which few moves of running pods would admit a waiting pod, or a gang that waits: defragmentation, as a plan.

A pure function of the settled cache: nothing is decided or recorded. Everything is tried on one transaction by the
plugins of the profile, so devices, NUMA zones, CPUs and volumes count as they do in a cycle. A moved pod goes to a node
that has capacity for it now, before anything moves: its place there can be held first. No pod goes to a node that
another one leaves for the unit. Network domains of a gang are not considered, and a unit of many pods is not planned
optimally: its pods get their nodes one after the other.
"""

from collections import Counter
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from typing import NamedTuple, TypeVar

import numpy as np

from services.scheduler.cache.disruption_budgets import Budget, Victim, drawn_down
from services.scheduler.cycle.cycle_inputs import CycleInputs
from services.scheduler.cycle.evaluation import ClassEvaluation
from services.scheduler.explain.fewest_moves_of_node import (
    fewest_moves,
    has_capacity,
    largest_share,
    requests_of,
    shortages,
    sums_of_largest,
)
from services.scheduler.explain.impossible_requests import NO_NODES, impossible_requests
from services.scheduler.extender_server.destinations_of_moves import place_copy, with_nominated_pods
from services.scheduler.framework.nominations_and_victims_of_cycle import victim_of
from services.scheduler.framework.victim_selection import choose_victims
from services.scheduler.kernels.array_types_and_row_selection import Int64
from services.scheduler.plugins.node_resources_fit import SPEC as FIT
from services.scheduler.queue.units import class_of
from services.scheduler.state.pod_equivalence_class import PodClass
from services.scheduler.state.pod_scheduling_record import PodRecord

MAX_NODES = 300
"""Nodes that are tried for a pod: those that lack the smallest share of its requests, then those with fewer pods."""

MORE_NODES = 20
"""Nodes that are tried for fewer moves behind one with a plan."""

MAX_ROUNDS = 4
"""Pods of a node that turn out to have no destination; then it is given up."""

MAX_MOVES_OF_NODE = 8
"""Pods that one node gives up at most; a larger move is an eviction of the node."""

NODES_OF_SLICE = 50
"""Nodes whose pods are looked at before other tasks of the process run."""

WhyFixed = Callable[[PodRecord], str]
NodesLeft = Callable[[PodRecord], Iterable[str]]


T = TypeVar("T")
Slices = Generator[None, None, T]
"""A search that pauses where other tasks of the process may run; the cache stays as it is meanwhile."""


class PlannedMove(NamedTuple):
    """A running pod that goes to another node."""

    pod_uid: str
    pod: str
    source: str
    destination: str


class UnitMoves(NamedTuple):
    """The plan.

    Attributes:
        nodes: uid of a waiting pod -> its node.
        moves: in the order in which they are made; none where the unit fits already.
        problem: why there is no plan, with the name of the pod where the unit has several; empty with one.
    """

    nodes: Mapping[str, str]
    moves: tuple[PlannedMove, ...]
    problem: str = ""


def moves_for(cache: CycleInputs, pods: Sequence[PodRecord], why_fixed: WhyFixed, now_ns: int) -> UnitMoves:
    """Plans the moves after which all the waiting pods fit, at once; see `moves_in_slices`."""
    return at_once(moves_in_slices(cache, pods, why_fixed, now_ns))


def at_once(search: Slices[T]) -> T:
    """Returns the result of a search without its pauses."""
    while True:
        try:
            next(search)
        except StopIteration as ended:
            found: T = ended.value
            return found


def no_node(_pod: PodRecord) -> Iterable[str]:
    """Returns no node: a pod may go to any."""
    return ()


def moves_in_slices(
    cache: CycleInputs, pods: Sequence[PodRecord], why_fixed: WhyFixed, now_ns: int, left: NodesLeft = no_node
) -> Slices[UnitMoves]:
    """Plans the moves after which all the waiting pods fit.

    Args:
        pods: the pods of the unit that need a node, of readable classes.
        why_fixed: returns why a running pod may not be moved at all; empty for one that may.
        left: returns the nodes to which a running pod does not go, since it left them lately.
    """
    search = _Search(cache, why_fixed, left, now_ns)
    for pod in pods:
        if not (yield from search.admit(pod)):
            whose = f"{pod.name}: " if len(pods) > 1 else ""
            return UnitMoves({}, (), whose + (yield from search.problem(pod)))
    if not search.moves:
        return UnitMoves(search.nodes, ())
    yield
    nodes = search.nodes_after_moves(pods)
    left_over = next((pod for pod in pods if pod.uid not in nodes), None)
    if left_over is not None:
        return UnitMoves(
            {}, (), f"{left_over.name} would be left over after the moves, since the others are placed first"
        )
    return UnitMoves(nodes, tuple(search.moves))


class _Search:
    """The search for one unit; each pod that has a node counts there for those behind it."""

    def __init__(self, cache: CycleInputs, why_fixed: WhyFixed, left: NodesLeft, now_ns: int) -> None:
        cache.settle()
        self.nodes: dict[str, str] = {}
        self.moves: list[PlannedMove] = []
        self._cache = cache
        self._why_fixed = why_fixed
        self._left = left
        self._now_ns = now_ns
        self._transaction = with_nominated_pods(cache, now_ns)
        self._evaluations: dict[PodClass, ClassEvaluation] = {}
        self._sources: set[str] = set()
        self._movable_on: dict[int, list[PodRecord]] = {}
        self._destinations: dict[PodClass, Int64] = {}

    def admit(self, pod: PodRecord) -> Slices[bool]:
        """Finds a node for a pod, with as few moves as possible; returns False where there is none."""
        node = place_copy(self._cache, self._transaction, self._evaluations, pod, set())
        if not node:
            best = yield from self._fewest_moves(pod)
            if not best:
                return False
            node = best[0].source
            self._apply(pod, best)
        self.nodes[pod.uid] = node
        self._destinations.clear()
        return True

    def nodes_after_moves(self, pods: Sequence[PodRecord]) -> dict[str, str]:
        """Places the pods of the unit as a cycle would, one after the other on its best node, once all moves are made: a
        pod that fitted before the moves may take the capacity that they free for another. Returns uid -> node.
        """
        cache, evaluations = self._cache, dict[PodClass, ClassEvaluation]()
        transaction = with_nominated_pods(cache, self._now_ns)
        for move in self.moves:
            moved = cache.view.pods[move.pod_uid]
            place_copy(cache, transaction, evaluations, moved, set(), move.destination)
        for move in self.moves:
            row = cache.table.rows[move.source]
            transaction.remove(cache.on[row][move.pod_uid], row)
        found = {pod.uid: place_copy(cache, transaction, evaluations, pod, set()) for pod in pods}
        return {uid: node for uid, node in found.items() if node}

    def problem(self, pod: PodRecord) -> Slices[str]:
        """Returns why a pod has no node."""
        if tried := len((yield from self._candidates(pod))):
            return (
                f"none of the {tried} nodes that were tried admits it after moves of at most {MAX_MOVES_OF_NODE} of "
                "its pods to nodes with capacity for them"
            )
        nodes = self._evaluation(class_of(pod)).resolvable().tolist()
        fixed: Counter[str] = Counter()
        for number, row in enumerate(nodes):
            if number % NODES_OF_SLICE == 0:
                yield
            fixed.update(map(self._fixed, self._on(row)))
        if not fixed:
            view = self._cache.view
            never = next(impossible_requests(view, pod), "") if view.nodes else NO_NODES
            return f"no move helps: {never or 'no node is short of something that another pod could give up'}"
        kinds = ", ".join(f"{count} {why}" for why, count in fixed.most_common())
        return (
            f"no move helps: of the pods on the {len(nodes)} nodes that are short of something, none may move ({kinds})"
        )

    def _fewest_moves(self, pod: PodRecord) -> Slices[tuple[PlannedMove, ...]]:
        """Returns the fewest moves on one node that admit a pod; none without any.

        No node behind one with a plan needs fewer moves than its own bound, and few nodes are tried for less.
        """
        best: tuple[PlannedMove, ...] = ()
        more = MORE_NODES
        for fewest, row in (yield from self._candidates(pod)):
            if best and (len(best) <= fewest or not more):
                break
            more -= bool(best)
            mark = self._transaction.mark()
            moves = yield from self._moves_on(pod, row)
            self._transaction.undo(mark)
            if moves and (not best or len(moves) < len(best)):
                best = moves
        return best

    def _candidates(self, pod: PodRecord) -> Slices[list[tuple[int, int]]]:
        """Returns the nodes that are tried for a pod, those that may need the fewest moves first: the bound of these, and
        the row.
        """
        pod_class, names, snapshot = class_of(pod), self._cache.table.names, self._transaction.snapshot
        rows = self._evaluation(pod_class).resolvable()
        requests = requests_of(snapshot, pod_class)
        lacking = shortages(snapshot, requests, rows)
        shares, pods = largest_share(lacking, requests), snapshot.pods[rows].tolist()
        places = sorted(range(len(rows)), key=lambda each: (shares[each], pods[each], names[rows[each]]))
        found = []
        for number, place in enumerate(places):
            if number % NODES_OF_SLICE == 0:
                yield
            row = int(rows[place])
            movable = self._movable(row)
            if movable:
                sums = sums_of_largest(snapshot, requests, [class_of(each) for each in movable])
                found.append((fewest_moves(lacking[place], sums), len(movable), names[row], row))
                if len(found) == MAX_NODES:
                    break
        return [(fewest, row) for fewest, _, _, row in sorted(found)]

    def _evaluation(self, pod_class: PodClass) -> ClassEvaluation:
        profile = self._cache.profiles[pod_class.scheduler]
        evaluation = self._evaluations.get(pod_class)
        if evaluation is None:
            evaluation = self._evaluations[pod_class] = self._transaction.evaluation(profile, pod_class)
        else:
            self._transaction.focus(profile, pod_class)
            evaluation.catch_up()
        return evaluation

    def _movable(self, row: int) -> list[PodRecord]:
        """Returns the pods of a node that may move, those left out that move already."""
        found = self._movable_on.get(row)
        if found is None:
            found = self._movable_on[row] = [pod for pod in self._on(row) if not self._fixed(pod)]
        return found

    def _fixed(self, pod: PodRecord) -> str:
        if pod.pod_class is not None and pod.pod_class.scheduler not in self._cache.profiles:
            return "of another scheduler"
        return self._why_fixed(pod)

    def _has_destination(self, pod: PodRecord, row: int) -> bool:
        """Reports whether another node than its own admits a pod now, while nothing is tried."""
        pod_class, table = class_of(pod), self._cache.table
        rows = self._destinations.get(pod_class)
        if rows is None:
            rows = self._destinations[pod_class] = self._admitting(pod_class)
        left = {table.rows[name] for name in self._left(pod) if name in table.rows}
        return len(rows) > len(left) + 1 or any(each != row and each not in left for each in rows.tolist())

    def _admitting(self, pod_class: PodClass) -> Int64:
        """Returns the rows that admit a pod of the class now and may be destinations."""
        table, profile = self._cache.table, self._cache.profiles[pod_class.scheduler]
        self._transaction.focus(profile, pod_class)
        snapshot = self._transaction.snapshot
        if any(plugin.name == FIT.name for plugin in profile.filters) and not has_capacity(snapshot, pod_class).any():
            return np.empty(0, np.int64)  # in a full cluster most classes are not evaluated by all plugins
        totals = self._evaluation(pod_class).total.copy()
        totals[[table.rows[name] for name in (*self._sources, *self.nodes.values())]] = -1
        return np.flatnonzero(totals >= 0)

    def _on(self, row: int) -> list[PodRecord]:
        """Returns the pods that are on a node after the moves so far."""
        gone = {move.pod_uid for move in self.moves}
        pods = (self._cache.view.pods[uid] for uid in self._cache.on.get(row, {}) if uid not in gone)
        return [pod for pod in pods if pod.node and pod.pod_class is not None]

    def _moves_on(self, pod: PodRecord, row: int) -> Slices[tuple[PlannedMove, ...]]:
        """Returns the moves after which a node admits a pod; none where there are too many, or one has no destination.

        A pod without a destination stays, and the others are chosen anew, a few times.
        """
        potential = [each for each in self._movable(row) if self._has_destination(each, row)]
        for _ in range(MAX_ROUNDS):
            yield
            chosen = self._chosen(pod, row, potential)
            if not chosen or len(chosen) > MAX_MOVES_OF_NODE:
                break
            mark = self._transaction.mark()
            moves = self._place(pod, row, chosen)
            if isinstance(moves, tuple):
                return moves
            self._transaction.undo(mark)
            potential = [each for each in potential if each.uid != moves]
        return ()

    def _chosen(self, pod: PodRecord, row: int, potential: Sequence[PodRecord]) -> list[PodRecord]:
        """Returns the fewest pods of a node without which it admits a pod; none where a disruption budget forbids it."""
        pod_class, assignments = class_of(pod), self._cache.on[row]
        profile, transaction = self._cache.profiles[pod_class.scheduler], self._transaction

        def remove(victim: Victim) -> None:
            transaction.remove(assignments[victim.uid], row)

        def put_back(victim: Victim) -> None:
            transaction.put_back(assignments[victim.uid], row)

        chosen = choose_victims(
            [victim_of(each) for each in potential],
            self._budgets(),
            remove=remove,
            put_back=put_back,
            fits=lambda: transaction.fits(profile, pod_class, row),
        )
        if chosen is None or chosen[1]:
            return []
        return [self._cache.view.pods[victim.uid] for victim in chosen[0]]

    def _budgets(self) -> Sequence[Budget]:
        """Returns the disruption budgets once the moves so far are made."""
        moved = (victim_of(self._cache.view.pods[move.pod_uid]) for move in self.moves)
        return drawn_down(self._cache.cluster_objects.budgets_of(), moved)

    def _place(self, pod: PodRecord, row: int, chosen: Sequence[PodRecord]) -> tuple[PlannedMove, ...] | str:
        """Places the moved pods, then the waiting one; returns the moves, or the uid of a pod without a destination."""
        names = self._cache.table.names
        source, moves = names[row], list[PlannedMove]()
        for each in chosen:  # while all are on their node: their places are held before they leave
            excluded = {source, *self._sources, *self.nodes.values(), *self._left(each)}
            node = place_copy(self._cache, self._transaction, self._evaluations, each, excluded)
            if not node:
                return each.uid
            moves.append(PlannedMove(each.uid, each.name, source, node))
        for each in chosen:
            self._transaction.remove(self._cache.on[row][each.uid], row)
        if place_copy(self._cache, self._transaction, self._evaluations, pod, set(), source):
            return tuple(moves)
        return chosen[0].uid

    def _apply(self, pod: PodRecord, moves: tuple[PlannedMove, ...]) -> None:
        """Makes the moves of a node, which were tried and undone."""
        row = self._cache.table.rows[moves[0].source]
        made = self._place(pod, row, [self._cache.view.pods[move.pod_uid] for move in moves])
        assert made == moves, "the transaction is as it was when they were tried"
        self.moves += moves
        self._sources.add(moves[0].source)
        del self._movable_on[row]
