"""Cache of all nodes with their CPUs and NUMA zones, by row: options of each, and the allocations of its pods.

A function of the nodes, their NodeResourceTopologies and the pods' annotations. The usage of a node is summed up
from its pods after each change, so that a release frees exactly the allocation, whatever the order of events. Nodes
with equal options and equal usage share one CachedNode, which is evaluated once for all.
"""

from collections.abc import Hashable, Iterable, Sequence
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from services.scheduler.cache.plugin_cache import PluginCache
from services.scheduler.kernels.array_types_and_row_selection import Bools, Int64
from services.scheduler.plugins.node_numa_resource import policy_names
from services.scheduler.plugins.node_numa_resource.allocation_annotations import allocation_of
from services.scheduler.plugins.node_numa_resource.node_cpu_and_zone_options import NodeOptions, node_options
from services.scheduler.plugins.node_numa_resource.node_debug_view import node_view
from services.scheduler.plugins.node_numa_resource.node_equivalence_cache import (
    CachedNode,
    NodeEquivalenceCache,
    options_key,
)
from services.scheduler.plugins.node_numa_resource.node_usage import Allocation, NodeUsage
from services.scheduler.state.pod_scheduling_record import Assignment
from shared.kube.node import Node
from shared.kube.node_resource_topology import NodeResourceTopology

_Scalar = TypeVar("_Scalar", bound=np.generic)


class _PodAllocation(NamedTuple):
    """One pod's allocation; usage is summed up in the order of the fields."""

    since_ns: int
    uid: str
    allocation: Allocation


class NumaCache(PluginCache):
    """Cache of one plugin.

    Attributes:
        plain: bool[rows]: a pod without requirements of its own passes there: no policy, no amplified cpu.
        valid: bool[rows]: the node's CPU topology is known.
        max_pods: number of pods that may share a CPU: 1, as in upstream unless a program that embeds it raises it.
    """

    def __init__(self) -> None:
        self.plain: Bools = np.zeros(0, np.bool_)
        self.valid: Bools = np.zeros(0, np.bool_)
        self.max_pods = 1
        self._nodes: dict[int, Node] = {}
        self._rows: dict[str, int] = {}
        self._topologies: dict[str, NodeResourceTopology] = {}
        self._options: dict[int, NodeOptions] = {}
        self._pods: dict[int, dict[str, _PodAllocation]] = {}
        self._cached_nodes: dict[int, CachedNode] = {}
        self._options_keys: dict[int, Hashable] = {}
        self._states = NodeEquivalenceCache()
        self._numbers: Int64 = np.zeros(0, np.int64)  # of the state by row; 0: not computed

    # updates by the cycle inputs

    def set_node(self, row: int, node: Node | None) -> None:
        """Sets the node in the row, None when it is deleted."""
        before = self._nodes.pop(row, None)
        if before is not None and self._rows.get(before.metadata.name) == row:
            del self._rows[before.metadata.name]
        if node is None:
            self._options.pop(row, None)
            self._options_keys.pop(row, None)
            self._drop_state(row)
        else:
            self._nodes[row] = node
            self._rows[node.metadata.name] = row
            self._set_options(row)

    def set_topology(self, name: str, topology: NodeResourceTopology | None) -> None:
        """Sets the NodeResourceTopology of that name, None when it is deleted."""
        self._topologies.pop(name, None)
        if topology is not None:
            self._topologies[name] = topology
        if name in self._rows:
            self._set_options(self._rows[name])

    def assign(self, row: int, uid: str, assignment: Assignment) -> None:
        """Counts the allocation in the pod's annotations, if there is one."""
        if not assignment.allocation:
            return
        allocation = allocation_of({**(assignment.pod_class.pod.metadata.annotations or {}), **assignment.allocation})
        if allocation:
            pods, counted = self._pods.setdefault(row, {}), _PodAllocation(assignment.assigned_ns, uid, allocation)
            state = self._cached_nodes.get(row)
            # Of pods that share a CPU the newest one's policy counts: an older pod is no simple step.
            is_newest = uid not in pods and all(_age(each) < _age(counted) for each in pods.values())
            after = self._after(row, state, allocation) if state is not None and is_newest else None
            pods[uid] = counted
            self._drop_state(row)
            if after is not None:
                self._cached_nodes[row] = after

    def release(self, row: int, uid: str, assignment: Assignment) -> None:  # noqa: ARG002 (it is known by its uid)
        """Counts the pod's allocation no longer."""
        pods = self._pods.get(row, {})
        if pods.pop(uid, None) is not None:
            self._drop_state(row)
            if not pods:
                del self._pods[row]

    # reads of a cycle

    def sized(self, size: int) -> tuple[Bools, Bools]:
        """`plain` and `valid` of so many rows."""
        self._reach(size)
        return self.plain[:size], self.valid[:size]

    def view(self, row: int) -> dict[str, Any]:
        """The node in a row with the pods that hold allocations of it, for the debug view."""
        allocated = sorted(self._pods.get(row, {}).values(), key=_age)
        return node_view(
            self.cached_node(row).node,
            [(pod_allocation.uid, pod_allocation.allocation) for pod_allocation in allocated],
        )

    def allocations(self, row: int) -> list[Allocation]:
        """The allocations of the pods of a node, oldest first."""
        return [pod_allocation.allocation for pod_allocation in sorted(self._pods.get(row, {}).values(), key=_age)]

    def cached_node(self, row: int, more: Sequence[Allocation] = (), gone: Iterable[Allocation] = ()) -> CachedNode:
        """The node in a row, with the allocations of more pods of the cycle and without those of removed pods."""
        left = list(gone)
        if left:
            allocated = self.allocations(row)
            for allocation in left:
                allocated.remove(allocation)
            return self._state(row, [*allocated, *more])
        state = self._cached_nodes.get(row)
        if state is None:
            state = self._cached_nodes[row] = self._state(row, self.allocations(row))
        for number, allocation in enumerate(more):
            state = self._after(row, state, allocation, more[:number])
        return state

    def _state(self, row: int, allocations: Iterable[Allocation]) -> CachedNode:
        options = self._options.get(row, NodeOptions())
        return self._states.of(options, self._options_key(row), NodeUsage(options.topology, allocations), self.max_pods)

    def _after(
        self, row: int, state: CachedNode, allocation: Allocation, more: Sequence[Allocation] = ()
    ) -> CachedNode:
        """The state with one more allocation, where `state` contains those of the node's pods and `more`."""

        def usage() -> NodeUsage:
            return NodeUsage(state.node.options.topology, [*self.allocations(row), *more, allocation])

        return self._states.after(state, allocation, self._options_key(row), usage)

    def _options_key(self, row: int) -> Hashable:
        key = self._options_keys.get(row)
        if key is None:
            key = self._options_keys[row] = options_key(self._options.get(row, NodeOptions()))
        return key

    def state_numbers(self, rows: Int64) -> Int64:
        """int64[all rows]: the numbers of the nodes' states, valid in these rows."""
        numbers = self._numbers
        for row in rows[numbers[rows] == 0].tolist():
            numbers[row] = self.cached_node(row).number
        return numbers

    def _drop_state(self, row: int) -> None:
        self._cached_nodes.pop(row, None)
        self._reach(row + 1)
        self._numbers[row] = 0

    def _set_options(self, row: int) -> None:
        node = self._nodes[row]
        self._options[row] = options = node_options(node, self._topologies.get(node.metadata.name))
        self._options_keys.pop(row, None)
        self._drop_state(row)
        self._reach(row + 1)
        wishes = options.numa_policy or options.bind_policy != policy_names.NODE_NONE
        ratios = (options.ratios.get("cpu", 1), options.node_ratios.get("cpu", 1))
        self.plain[row] = not wishes and max(ratios) <= 1
        self.valid[row] = options.topology.valid

    def _reach(self, size: int) -> None:
        if size > len(self.plain):
            self.plain, self.valid = (_longer(array, 2 * size) for array in (self.plain, self.valid))
            self._numbers = _longer(self._numbers, 2 * size)


def _age(pod_allocation: _PodAllocation) -> tuple[int, str]:
    return pod_allocation.since_ns, pod_allocation.uid


def _longer(array: NDArray[_Scalar], size: int) -> NDArray[_Scalar]:
    longer = np.zeros(size, array.dtype)
    longer[: len(array)] = array
    return longer
