"""A state that nodes are in: equal options, and equal usage of CPUs and zones.

A filter result, a score and an allocation depend on the state and the class alone, apart from the amounts of the whole
node.
"""

from collections.abc import Hashable, Sequence

from services.scheduler.plugins.helper.numa_hint_provider_interface import ZoneOffer
from services.scheduler.plugins.node_numa_resource.choose_cpus_and_zones import NumaNode
from services.scheduler.plugins.node_numa_resource.filter_score_reserve_on_one_node import NodeAdmission
from services.scheduler.plugins.node_numa_resource.node_cpu_and_zone_options import NodeOptions
from services.scheduler.plugins.node_numa_resource.pod_requirements_cached_by_class import PodClassRequirements
from services.scheduler.plugins.node_numa_resource.scoring_strategy import Strategies

MAX_CLASSES = 64
"""Number of classes whose results a CachedNode keeps."""

MAX_UNUSED = 256
"""Number of states kept beyond those that a node is in: the next node to fill up often enters one of them."""

MAX_TRANSITIONS = 256
"""Number of (state, one more allocation) of which the next state is kept."""


class CachedNode:
    """A state with the cached admissions of classes.

    Attributes:
        number: see `EquivalentStates`.
    """

    def __init__(self, node: NumaNode, number: int) -> None:
        self.node = node
        self.number = number
        self._admissions: dict[Hashable, NodeAdmission] = {}

    def admission(
        self, class_requirements: PodClassRequirements, strategies: Strategies, beside: Sequence[ZoneOffer] = ()
    ) -> NodeAdmission:
        """The admission of a class to a node in this state.

        Args:
            beside: what other plugins offer to the class there.
        """
        key = (class_requirements.key, *(offer.key for offer in beside)) if beside else class_requirements.key
        admission = self._admissions.get(key)
        if admission is None:
            if len(self._admissions) >= MAX_CLASSES:
                self._admissions.clear()
            admission = self._admissions[key] = NodeAdmission(
                class_requirements.requirements, self.node, strategies, beside
            )
        return admission


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
