"""NodeNUMAResource as a plugin of a profile: CPUs of a pod's own, and the NUMA nodes that its resources come from.

The rules are in `numa/`. Most pods wish for nothing and most nodes have no policy; for these, all nodes are scored at once. Whoever
wishes for something is judged node by node, and what was worked out is kept until the node changes.

Source: spec/scheduler-core.md 4; upstream pkg/scheduler/plugins/nodenumaresource.
"""

from collections.abc import Iterator, Mapping
from copy import copy
from typing import ClassVar

import numpy as np

from services.scheduler.cache.cycle_snapshot import CycleSnapshot
from services.scheduler.cache.plugin_cache import PluginCache
from services.scheduler.framework.plugin import Plugin
from services.scheduler.framework.plugin_state import PluginState
from services.scheduler.framework.reasons import Reason
from services.scheduler.framework.score_terms import AllocationTerm, ScoreTerm
from services.scheduler.framework.spec import PluginSpec
from services.scheduler.kernels.resources import filled
from services.scheduler.kernels.tiles import Bools, Int64, Rows
from services.scheduler.plugins.node_numa_resource import SPEC
from services.scheduler.plugins.node_numa_resource.allocation_annotations import allocation_of, annotations_for
from services.scheduler.plugins.node_numa_resource.args import NumaArgs
from services.scheduler.plugins.node_numa_resource.node_admission import Cycle
from services.scheduler.plugins.node_numa_resource.node_cache import Asked, NumaCache, Site
from services.scheduler.plugins.node_numa_resource.node_usage import Allocation
from services.scheduler.plugins.node_numa_resource.pod_requirements import Demand, Refused, read_demand
from services.scheduler.plugins.node_numa_resource.policies import MOST
from services.scheduler.plugins.node_numa_resource.refusal_numbers import CycleRefusals, RefusalNumbers
from services.scheduler.plugins.node_numa_resource.scoring_strategy import ALWAYS_SCORED, score
from services.scheduler.state.pod_class import PodClass
from services.scheduler.state.pod_record import Assignment, PodRecord


class NodeNUMAResource(Plugin):
    """Refuses nodes that cannot give a pod the CPUs or NUMA zones it needs; prefers by what is left. Gives both.

    A filter result is the number of a refusal; numbers never leave the process.
    """

    spec: ClassVar[PluginSpec] = SPEC

    def __init__(self, args: NumaArgs) -> None:
        self.args = args
        self.strategies = args.strategies
        self.refusals = RefusalNumbers()

    def new_cache(self) -> PluginCache:
        """What nodes offer and pods hold, by row."""
        return NumaCache()

    def new_state(self, snapshot: CycleSnapshot, plugin_cache: PluginCache | None, now_ns: int) -> PluginState:  # noqa: ARG002
        """Gives CPUs and zones in the course of the cycle."""
        assert isinstance(plugin_cache, NumaCache), "the index hands back what new_cache made"
        return _NodeNUMAResourceState(self, snapshot, plugin_cache)

    def reasons(self, pod_class: PodClass, result: int) -> tuple[Reason, ...]:  # noqa: ARG002
        """One reason for each resource that is short, or the first that holds."""
        return self.refusals[result].reasons

    def unresolvable(self, pod_class: PodClass, result: int) -> bool:  # noqa: ARG002
        """Policies, topologies and fractions stay, whoever goes."""
        return self.refusals[result].unresolvable

    def asked(self, pod_class: PodClass) -> Asked | Refused | None:
        """What a class asks for; None when it asks for nothing at all."""
        try:
            asked: Asked | Refused | None = pod_class.cached[self]
        except KeyError:
            demand = read_demand(pod_class.pod, pod_class.request, self.args.bind)
            asked = Asked(demand) if isinstance(demand, Demand) else demand
            pod_class.cached[self] = asked
        return asked


class _NodeNUMAResourceState(PluginState):
    """NodeNUMAResource for one cycle."""

    def __init__(self, plugin: NodeNUMAResource, snapshot: CycleSnapshot, fleet: NumaCache) -> None:
        self._plugin = plugin
        self._refusals = CycleRefusals(plugin.refusals)
        self.snapshot = snapshot
        self._fleet = fleet
        size = snapshot.size
        self._alive: Bools = snapshot.table.alive[:size].copy()
        plain, valid = fleet.sized(size)
        self._not_plain = _some(self._alive & ~plain)
        self._not_for_bound = _some(self._alive & ~(plain & valid))
        names = dict.fromkeys(("cpu", *(name for name, _ in plugin.strategies.weights)))
        self.columns = [(name, column) for name in names if (column := snapshot.column(name)) >= 0]
        self._scored = tuple(snapshot.column(name) for name, _ in plugin.strategies.weights)
        self._unscored = (-1,) * len(self._scored)
        self._weights = tuple(weight for _, weight in plugin.strategies.weights)
        self._more: dict[int, list[Allocation]] = {}
        self._gone: dict[int, list[Allocation]] = {}
        self._sites: dict[int, Site] = {}

    def applies_to(self, pod_class: PodClass) -> bool:
        """Whether the class wishes for something, or a node has a policy: who wishes for CPUs does so whatever their number."""
        asked = self._plugin.asked(pod_class)
        if asked is None:
            return False
        return isinstance(asked, Refused) or asked.demand.bind or self._needs_a_closer_look(asked.demand) is not None

    def score_term(self, pod_class: PodClass) -> ScoreTerm | None:
        """How full nodes would be, where none has to be looked at closely."""
        asked = self._plugin.asked(pod_class)
        if asked is None or isinstance(asked, Refused) or self._needs_a_closer_look(asked.demand) is not None:
            return None
        return self._fullness(asked.demand)

    def filter(self, pod_class: PodClass, rows: Rows) -> Int64 | None:
        """The verdicts; None when nobody on either side wishes for anything."""
        asked = self._plugin.asked(pod_class)
        if asked is None:
            return None
        count = len(self._alive[rows])
        if isinstance(asked, Refused):
            return np.full(count, self._refusals.number(asked), np.int64)
        closer = self._needs_a_closer_look(asked.demand)
        if closer is None or not (closer := closer[rows]).any():
            return None
        results = np.zeros(count, np.int64)
        for place, row in self._places(closer, rows):
            results[place] = self._result(asked, row)
        return results

    def filter_at(self, pod_class: PodClass, row: int) -> int:
        """The verdict on one node."""
        asked = self._plugin.asked(pod_class)
        if asked is None:
            return 0
        if isinstance(asked, Refused):
            return self._refusals.number(asked)
        return self._result(asked, row) if self._is_looked_at(asked.demand, row) else 0

    def score(self, pod_class: PodClass, rows: Rows) -> Int64 | None:
        """Least or most allocated, of the node or of the zones that the pod would get."""
        asked = self._plugin.asked(pod_class)
        if asked is None or isinstance(asked, Refused):
            return None
        scores = self._scores_of_nodes(asked.demand, rows)
        closer = self._needs_a_closer_look(asked.demand)
        if closer is not None:
            for place, row in self._places(closer[rows], rows):
                scores[place] = self._score(asked, row)
        return scores

    def score_at(self, pod_class: PodClass, row: int) -> int:
        """The score of one node."""
        asked = self._plugin.asked(pod_class)
        if asked is None or isinstance(asked, Refused):
            return 0
        if self._is_looked_at(asked.demand, row):
            return self._score(asked, row)
        whole, strategies = _RowAmounts(self, row), self._plugin.strategies
        demand = asked.demand
        return score(strategies.of_node, strategies.weights, whole.allocatable, whole.requested, demand.requests)

    def can_predict(self, pod_class: PodClass) -> bool:
        """Whether no node has to be looked at closely."""
        asked = self._plugin.asked(pod_class)
        return asked is None or not (isinstance(asked, Refused) or self._needs_a_closer_look(asked.demand) is not None)

    def after_one_more(self, pod_class: PodClass, snapshot: CycleSnapshot) -> PluginState | None:
        """The same in a fuller room."""
        if not self.can_predict(pod_class):
            return None
        fuller = copy(self)
        fuller.snapshot = snapshot
        return fuller

    def reserve(self, pod_class: PodClass, row: int) -> Mapping[str, str] | int:
        """CPUs and zones for a pod of the class, as annotations; nothing for one that neither wishes nor is made to."""
        asked = self._plugin.asked(pod_class)
        if asked is None or isinstance(asked, Refused):
            return {}
        if not asked.demand.bind and not self._is_looked_at(asked.demand, row):
            return {}
        cycle = self._cycle(asked, row)
        got = cycle.reserve()
        if isinstance(got, Refused):
            return self._refusals.number(got)
        return (
            annotations_for(pod_class.pod, got, cycle.want.own_bind, required=cycle.want.required)
            if cycle.allocates
            else {}
        )

    def assume(self, pod: PodRecord, pod_class: PodClass, row: int, annotations: Mapping[str, str]) -> None:  # noqa: ARG002
        """Count what the pod was given."""
        allocation = allocation_of({**(pod_class.pod.metadata.annotations or {}), **annotations})
        if allocation:
            self._more.setdefault(row, []).append(allocation)
            self._sites[row] = self._fleet.site(row, self._more[row], self._gone.get(row, ()))

    def release(self, assignment: Assignment, row: int, sign: int) -> None:
        """Free what a running pod has, or count it again."""
        allocation = allocation_of(
            {**(assignment.pod_class.pod.metadata.annotations or {}), **(assignment.allocation or {})}
        )
        if not allocation:
            return
        gone = self._gone.setdefault(row, [])
        gone.remove(allocation) if sign > 0 else gone.append(allocation)
        self._sites[row] = self._fleet.site(row, self._more.get(row, ()), gone)

    def _needs_a_closer_look(self, demand: Demand) -> Bools | None:
        """bool[rows]: nodes that have to be judged one by one; None when there are none."""
        if demand.numa_policy or demand.required or demand.designated is not None:
            return self._alive
        return self._not_for_bound if demand.bind else self._not_plain

    @staticmethod
    def _places(closer: Bools, rows: Rows) -> Iterator[tuple[int, int]]:
        """(place among the rows, row) of those to look at."""
        for place in np.flatnonzero(closer).tolist():
            yield place, place if isinstance(rows, slice) else int(rows[place])

    def _is_looked_at(self, demand: Demand, row: int) -> bool:
        closer = self._needs_a_closer_look(demand)
        return closer is not None and bool(closer[row])

    def _cycle(self, asked: Asked, row: int) -> Cycle:
        site = self._sites.get(row) or self._fleet.site(row)
        return site.cycle(asked, self._plugin.strategies)

    def _result(self, asked: Asked, row: int) -> int:
        return self._refusals.number(self._cycle(asked, row).filter(_RowAmounts(self, row)))

    def _score(self, asked: Asked, row: int) -> int:
        return self._cycle(asked, row).score(_RowAmounts(self, row))

    def _scores_of_nodes(self, demand: Demand, rows: Rows) -> Int64:
        """The scores of nodes as wholes, without policies and amplification."""
        snapshot, part = self.snapshot, self._fullness(demand)
        arrays = (
            *snapshot.which(rows),
            snapshot.table.allocatable.T,
            snapshot.requested.T,
            snapshot.nonzero_requested.T,
        )
        return filled(*arrays, *part.arrays())

    def _fullness(self, demand: Demand) -> AllocationTerm:
        wanted = tuple([demand.requests.get(name, 0) for name, _ in self._plugin.strategies.weights])
        columns, weights = self._scored, self._plugin.strategies.weights
        if 0 in wanted:
            columns = tuple(
                column if size > 0 or name in ALWAYS_SCORED else -1
                for column, size, (name, _) in zip(columns, wanted, weights, strict=True)
            )
        return AllocationTerm(columns, self._unscored, wanted, self._weights, self._plugin.strategies.of_node == MOST)


class _RowAmounts:
    """A node's amounts as a whole, of the resources that count; read when asked for."""

    __slots__ = ("_row", "_state")

    def __init__(self, state: _NodeNUMAResourceState, row: int) -> None:
        self._state = state
        self._row = row

    @property
    def allocatable(self) -> dict[str, int]:
        item = self._state.snapshot.table.allocatable.item
        return {name: item(self._row, column) for name, column in self._state.columns}

    @property
    def requested(self) -> dict[str, int]:
        item = self._state.snapshot.requested.item
        return {name: item(self._row, column) for name, column in self._state.columns}


def _some(rows: Bools) -> Bools | None:
    return rows if rows.any() else None
