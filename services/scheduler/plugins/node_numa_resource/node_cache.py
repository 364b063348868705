"""Cache of all nodes with their CPUs and NUMA zones, by row: options of each, and the allocations of its pods.

A function of the nodes, their NodeResourceTopologies and the pods' annotations. The usage of a node is summed up
from its pods after each change, so that a release frees exactly the allocation, whatever the order of events. Nodes
with equal options and equal usage share one CachedNode, which is evaluated once for all.
"""

from collections.abc import Hashable, Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from services.scheduler.kernels.array_types_and_row_selection import Bools
from services.scheduler.plugins.helper.equivalent_states import EquivalentStates
from services.scheduler.plugins.helper.node_state_cache import NodeStateCache, longer
from services.scheduler.plugins.helper.nodes_with_objects import NodesWithObjects
from services.scheduler.plugins.node_numa_resource import policy_names
from services.scheduler.plugins.node_numa_resource.allocation_annotations import allocation_of
from services.scheduler.plugins.node_numa_resource.choose_cpus_and_zones import NumaNode
from services.scheduler.plugins.node_numa_resource.node_cpu_and_zone_options import NodeOptions, node_options
from services.scheduler.plugins.node_numa_resource.node_debug_view import node_view
from services.scheduler.plugins.node_numa_resource.node_equivalence_cache import (
    MAX_TRANSITIONS,
    MAX_UNUSED,
    CachedNode,
    options_key,
)
from services.scheduler.plugins.node_numa_resource.node_usage import Allocation, NodeUsage
from services.scheduler.state.pod_scheduling_record import Assignment
from shared.kube.node import Node
from shared.kube.node_resource_topology import NodeResourceTopology


class _PodAllocation(NamedTuple):
    """One pod's allocation; usage is summed up in the order of the fields."""

    since_ns: int
    uid: str
    allocation: Allocation


class NumaCache(NodeStateCache[Allocation, _PodAllocation, CachedNode]):
    """Cache of one plugin.

    Attributes:
        plain: bool[rows]: a pod without requirements of its own passes there: no policy, no amplified cpu.
        valid: bool[rows]: the node's CPU topology is known.
        aligned: bool[rows]: the node has a NUMA policy; fixed: one by which its filter decides the affinity.
        max_pods: number of pods that may share a CPU: 1, as in upstream unless a program that embeds it raises it.
    """

    def __init__(self) -> None:
        super().__init__()
        self.plain: Bools = np.zeros(0, np.bool_)
        self.valid: Bools = np.zeros(0, np.bool_)
        self.aligned: Bools = np.zeros(0, np.bool_)
        self.fixed: Bools = np.zeros(0, np.bool_)
        self.max_pods = 1
        self._nodes: NodesWithObjects[NodeResourceTopology] = NodesWithObjects()
        self._options: dict[int, NodeOptions] = {}
        self._options_keys: dict[int, Hashable] = {}
        self._equivalent: EquivalentStates[CachedNode] = EquivalentStates(MAX_UNUSED, MAX_TRANSITIONS)

    # updates by the cycle inputs

    def set_node(self, row: int, node: Node | None) -> None:
        """Sets the node in the row, None when it is deleted."""
        self._nodes.set_node(row, node)
        if node is None:
            self._options.pop(row, None)
            self._options_keys.pop(row, None)
            self._drop_state(row)
        else:
            self._set_options(row)

    def set_topology(self, name: str, topology: NodeResourceTopology | None) -> None:
        """Sets the NodeResourceTopology of that name, None when it is deleted."""
        if (row := self._nodes.set_object(name, topology)) is not None:
            self._set_options(row)

    def assign(self, row: int, uid: str, assignment: Assignment) -> None:
        """Counts the allocation in the pod's annotations, if there is one."""
        if not assignment.allocation:
            return
        allocation = allocation_of({**(assignment.pod_class.pod.metadata.annotations or {}), **assignment.allocation})
        if allocation:
            pods, counted = self._pods.setdefault(row, {}), _PodAllocation(assignment.assigned_ns, uid, allocation)
            state = self._states.get(row)
            # Of pods that share a CPU the newest one's policy counts: an older pod is no simple step.
            is_newest = uid not in pods and all(_age(each) < _age(counted) for each in pods.values())
            after = self.after(row, state, allocation) if state is not None and is_newest else None
            pods[uid] = counted
            self._drop_state(row)
            if after is not None:
                self._states[row] = after

    # reads of a cycle

    def sized(self, size: int) -> tuple[Bools, Bools]:
        """`plain` and `valid` of so many rows."""
        self._reach(size)
        return self.plain[:size], self.valid[:size]

    def view(self, row: int) -> dict[str, Any]:
        """The node in a row with the pods that hold allocations of it, for the debug view."""
        allocated = sorted(self._pods.get(row, {}).values(), key=_age)
        return node_view(
            self.state(row).node,
            [(pod_allocation.uid, pod_allocation.allocation) for pod_allocation in allocated],
        )

    def allocations(self, row: int) -> list[Allocation]:
        """The allocations of the pods of a node, oldest first."""
        return [pod_allocation.allocation for pod_allocation in sorted(self._pods.get(row, {}).values(), key=_age)]

    def after(self, row: int, state: CachedNode, allocation: Allocation, more: Sequence[Allocation] = ()) -> CachedNode:
        """The state with one more allocation, where `state` contains those of the node's pods and `more`."""

        def found() -> CachedNode:
            options = state.node.options
            usage = NodeUsage(options.topology, [*self.allocations(row), *more, allocation])
            return self._equivalent_to(row, options, usage)

        return self._equivalent.after(state, id(allocation), allocation, found)

    def _of(self, row: int, allocations: Iterable[Allocation]) -> CachedNode:
        options = self._options.get(row, NodeOptions())
        return self._equivalent_to(row, options, NodeUsage(options.topology, allocations))

    def _equivalent_to(self, row: int, options: NodeOptions, usage: NodeUsage) -> CachedNode:
        def made(number: int) -> CachedNode:
            return CachedNode(NumaNode(options, usage, self.max_pods), number)

        return self._equivalent.of((self._options_key(row), usage.key(), self.max_pods), made)

    def _options_key(self, row: int) -> Hashable:
        key = self._options_keys.get(row)
        if key is None:
            key = self._options_keys[row] = options_key(self._options.get(row, NodeOptions()))
        return key

    def _set_options(self, row: int) -> None:
        node = self._nodes.node(row)
        assert node is not None, "a deleted node has no options"
        self._options[row] = options = node_options(node, self._nodes.object_of(row))
        self._options_keys.pop(row, None)
        self._drop_state(row)
        wishes = options.numa_policy or options.bind_policy != policy_names.NODE_NONE
        ratios = (options.ratios.get("cpu", 1), options.node_ratios.get("cpu", 1))
        self.plain[row] = not wishes and max(ratios) <= 1
        self.valid[row] = options.topology.valid
        self.aligned[row] = bool(options.numa_policy)
        self.fixed[row] = options.numa_policy in policy_names.FIXED

    def _reach(self, size: int) -> None:
        super()._reach(size)
        if len(self.plain) < len(self._numbers):
            self.plain, self.valid, self.aligned, self.fixed = (
                longer(array, len(self._numbers)) for array in (self.plain, self.valid, self.aligned, self.fixed)
            )


def _age(pod_allocation: _PodAllocation) -> tuple[int, str]:
    return pod_allocation.since_ns, pod_allocation.uid
