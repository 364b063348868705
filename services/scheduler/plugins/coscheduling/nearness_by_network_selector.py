"""Scores nodes by how near they are, in the network, to pods with the same `network-topology-selector`.

Feasible nodes are ordered by the number of such pods on the node, in its domain, and in the domains above that, the
most first; then by the number of feasible nodes in these domains, the fewest first, so that small domains are filled
and large ones stay free; then by name. The first node scores 100, the last one 0:

    score = 100 - 100 * place // last place

Nodes without a place in the network's tree come last, all alike.

Source: spec/scheduler-workloads.md 2.6 (score of a single pod); upstream
pkg/scheduler/plugins/coscheduling/core/network_topology_workflow.go.
"""

import numpy as np

from services.scheduler.cache.network_domains import NetworkDomains
from services.scheduler.cache.node_amounts_within_cycle import CycleSnapshot
from services.scheduler.cache.pods_with_network_selector import network_selector, pods_with_network_selector
from services.scheduler.framework.plugin_base import MAX_SCORE
from services.scheduler.framework.plugin_extension_points import PluginCycleState
from services.scheduler.kernels.array_types_and_row_selection import Bools, Int64
from services.scheduler.state.pod_equivalence_class import PodClass
from services.scheduler.state.pod_scheduling_record import PodRecord


class NearnessState(PluginCycleState):
    """The pods of each selector within one cycle; pods without a selector are scored 0."""

    def __init__(self, snapshot: CycleSnapshot) -> None:
        self._snapshot = snapshot
        self._domains = snapshot.cluster_objects.network.domains(snapshot.table)
        self._pods: dict[str, Int64] = {}  # selector -> [rows], its pods, of selectors that were scored
        self._steps = 0

    def applies_to(self, pod_class: PodClass) -> bool:
        """Returns False for pods without a selector, and where the network has no tree."""
        return self._domains is not None and bool(network_selector(pod_class))

    def counts(self, pod_class: PodClass) -> bool:
        """Counts pods with a selector."""
        return self.applies_to(pod_class)

    def revision(self, pod_class: PodClass) -> int:  # noqa: ARG002
        """The number of steps with pods that have a selector."""
        return self._steps

    def ignores_own_placements(self, pod_class: PodClass) -> bool:
        """Returns False for pods with a selector: each draws the next ones to its node."""
        return not self.applies_to(pod_class)

    def scores(self, pod_class: PodClass, feasible: Bools) -> Int64 | None:
        """Scores nodes by their place in the order."""
        if self._domains is None or not (selector := network_selector(pod_class)):
            return None
        return nearness(self._domains, self._of(selector), feasible)

    def place(self, pod: PodRecord, pod_class: PodClass, row: int) -> None:  # noqa: ARG002
        """Counts a pod on the node."""
        self._count(pod_class, row, +1)

    def undo_place(self, pod: PodRecord, pod_class: PodClass, row: int) -> None:  # noqa: ARG002
        """Counts it no longer."""
        self._count(pod_class, row, -1)

    def move(self, pod_class: PodClass, row: int, *, terminating: bool, sign: int) -> None:  # noqa: ARG002
        """Counts one pod more on the node, or one less."""
        self._count(pod_class, row, sign)

    def _count(self, pod_class: PodClass, row: int, sign: int) -> None:
        self._steps += 1
        pods = self._pods.get(network_selector(pod_class))
        if pods is not None:
            pods[row] += sign

    def _of(self, selector: str) -> Int64:
        pods = self._pods.get(selector)
        if pods is None:
            pods = self._pods[selector] = np.zeros(self._snapshot.size, np.int64)
            for row, count in pods_with_network_selector(self._snapshot, selector).items():
                pods[row] = count
        return pods


def nearness(domains: NetworkDomains, pods: Int64, feasible: Bools) -> Int64:
    """Returns [rows]: the scores of feasible nodes, 0..100; anything elsewhere.

    Args:
        pods: [rows], the pods to be near to.
        feasible: bool[rows].
    """
    there, capable = pods[domains.rows], feasible[domains.rows]
    places = np.flatnonzero(capable)
    above = domains.parents[-1][places]
    keys = (
        domains.ranks[-1][places],
        _order_outwards(domains, capable.astype(np.int64))[above],
        _order_outwards(domains, -there)[above],
        -there[places],
    )
    raw = np.full(len(feasible), len(places), np.int64)
    raw[domains.rows[places[np.lexsort(keys)]]] = np.arange(len(places))
    highest = int(raw[feasible].max(initial=0))
    return MAX_SCORE - MAX_SCORE * raw // highest if highest else np.full(len(raw), MAX_SCORE)


def _order_outwards(domains: NetworkDomains, of_nodes: Int64) -> Int64:
    """Returns [domains of the layer above the nodes]: their order by an amount, summed over their nodes, then by that of
    each domain above them outwards, the least first; equal ones have one number.
    """
    innermost = len(domains.layers) - 2
    amounts = [of_nodes]
    for layer in range(innermost, -1, -1):
        amounts.append(domains.sums(amounts[-1], layer))
    order = np.zeros(1, np.int64)
    for layer in range(1, innermost + 1):
        keys = np.stack((amounts[innermost + 1 - layer], order[domains.parents[layer]]), axis=1)
        order = np.unique(keys, axis=0, return_inverse=True)[1].reshape(-1)
    return order
