"""States of nodes, shared by all nodes that are in the same one: equal options, and equal usage of CPUs and zones.

A filter result, a score and an allocation depend on the state and the class alone (apart from the amounts of the whole
node), so that each is computed once for a (state, class), not once for a node. Nodes of one model that fill up with
equal pods pass through the same states.
"""

from collections import OrderedDict
from collections.abc import Callable, Hashable
from itertools import count
from typing import NamedTuple
from weakref import WeakValueDictionary

from services.scheduler.plugins.node_numa_resource.choose_cpus_and_zones import NumaNode
from services.scheduler.plugins.node_numa_resource.filter_score_reserve_on_one_node import NodeAdmission
from services.scheduler.plugins.node_numa_resource.node_cpu_and_zone_options import NodeOptions
from services.scheduler.plugins.node_numa_resource.node_usage import Allocation, NodeUsage
from services.scheduler.plugins.node_numa_resource.pod_requirements_cached_by_class import PodClassRequirements
from services.scheduler.plugins.node_numa_resource.scoring_strategy import Strategies

MAX_CLASSES = 64
"""Number of classes whose results a CachedNode keeps."""

MAX_UNUSED = 256
"""Number of states kept beyond those that a node is in: the next node to fill up often enters one of them."""

MAX_TRANSITIONS = 256
"""Number of (state, one more allocation) of which the next state is kept."""

_Usage = Callable[[], NodeUsage]


class CachedNode:
    """A state with the cached admissions of classes.

    Attributes:
        number: identifies the state within its NodeEquivalenceCache; it is positive, and never used again.
    """

    def __init__(self, node: NumaNode, number: int) -> None:
        self.node = node
        self.number = number
        self._admissions: dict[Hashable, NodeAdmission] = {}

    def admission(self, class_requirements: PodClassRequirements, strategies: Strategies) -> NodeAdmission:
        """The admission of a class to a node in this state."""
        admission = self._admissions.get(class_requirements.key)
        if admission is None:
            if len(self._admissions) >= MAX_CLASSES:
                self._admissions.clear()
            admission = self._admissions[class_requirements.key] = NodeAdmission(
                class_requirements.requirements, self.node, strategies
            )
        return admission


class _Transition(NamedTuple):
    """A change of state by one more allocation. It refers to the allocation, whose id is in its key."""

    allocation: Allocation
    after: CachedNode


class NodeEquivalenceCache:
    """The states that nodes are in, and the last ones that nodes were in."""

    def __init__(self) -> None:
        # A state that no node and no cycle refers to is dropped, so their number is bounded by that of the nodes.
        self._states: WeakValueDictionary[Hashable, CachedNode] = WeakValueDictionary()
        self._latest: OrderedDict[int, CachedNode] = OrderedDict()
        self._numbers = count(1)
        self._transitions: OrderedDict[tuple[int, int], _Transition] = OrderedDict()

    def of(self, options: NodeOptions, options_key: Hashable, usage: NodeUsage, max_pods: int) -> CachedNode:
        """The state of a node.

        Args:
            options_key: `options_key` of its options.
            usage: by its pods.
        """
        key = options_key, usage.key(), max_pods
        state = self._states.get(key)
        if state is None:
            state = self._states[key] = CachedNode(NumaNode(options, usage, max_pods), next(self._numbers))
        self._latest[state.number] = state
        self._latest.move_to_end(state.number)
        if len(self._latest) > MAX_UNUSED:
            self._latest.popitem(last=False)
        return state

    def after(self, state: CachedNode, allocation: Allocation, options_key: Hashable, usage: _Usage) -> CachedNode:
        """The state with one more allocation.

        Args:
            options_key: of the node's options.
            usage: sums up the usage with the allocation, where the change is not known yet.
        """
        key = state.number, id(allocation)
        found = self._transitions.get(key)
        if found is None:
            node = state.node
            found = _Transition(allocation, self.of(node.options, options_key, usage(), node.max_pods))
            self._transitions[key] = found
            if len(self._transitions) > MAX_TRANSITIONS:
                self._transitions.popitem(last=False)
        else:
            self._transitions.move_to_end(key)
        return found.after


def options_key(options: NodeOptions) -> Hashable:
    """A key that is equal for nodes with equal options."""
    return (
        options.known,
        options.topology,  # one object for each machine model
        options.reserved,
        tuple((zone.numa, tuple(sorted(zone.total.items()))) for zone in options.zones),
        tuple(sorted(options.ratios.items())),
        tuple(sorted(options.node_ratios.items())),
        options.numa_policy,
        options.bind_policy,
        options.strategy,
        options.problems,
    )
