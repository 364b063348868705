"""NodeAffinity: matches the node selector and the node affinity of a pod with the labels of the nodes.

Filter: `nodeSelector` and one of the required terms. Score: the sum of the weights of the preferred terms that match.

Source: spec/scheduler-core.md 2.2, 2.4.
"""

from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from services.scheduler.cache.node_amounts_within_cycle import CycleSnapshot
from services.scheduler.cache.nodes import NodeTable
from services.scheduler.cache.plugin_cache import PluginCache
from services.scheduler.framework.plugin_base import Plugin
from services.scheduler.framework.plugin_extension_points import PluginCycleState
from services.scheduler.framework.plugin_spec import PluginSpec
from services.scheduler.framework.reasons import Reason
from services.scheduler.kernels.array_types_and_row_selection import Rows
from services.scheduler.plugins.helper.node_only_result_cache import NodeOnlyState
from services.scheduler.plugins.helper.node_selectors import affinity_of, own_matches, required_matches, term_matches
from services.scheduler.plugins.node_affinity import SPEC
from services.scheduler.state.pod_equivalence_class import PodClass
from shared.kube.pod import NodeAffinity as Affinity

_NO_MATCH, _NO_ENFORCED_MATCH = 1, 2


class NodeAffinity(Plugin):
    """Rejects nodes that the pod's selector or required terms do not match; scores by its preferred terms.

    `added` is the operator's `addedAffinity`: it holds for every pod, in addition to the pod's own.
    """

    spec: ClassVar[PluginSpec] = SPEC

    def __init__(self, added: Affinity | None = None) -> None:
        self.added = added

    def new_state(self, snapshot: CycleSnapshot, plugin_cache: PluginCache | None, now_ns: int) -> PluginCycleState:  # noqa: ARG002
        """Raw score: the sum of the weights of matching preferred terms."""
        return NodeOnlyState(self, snapshot.table, _reads, self._evaluate, self._weigh)

    def reasons(self, pod_class: PodClass, result: int) -> tuple[Reason, ...]:  # noqa: ARG002
        """The pod's own affinity does not match, or the operator's."""
        return (Reason("EnforcedNodeAffinityMismatch" if result == _NO_ENFORCED_MATCH else "NodeAffinityMismatch"),)

    def unresolvable(self, pod_class: PodClass, result: int) -> bool:  # noqa: ARG002
        """Preemption cannot help: the labels stay."""
        return True

    def requires(self, pod_class: PodClass) -> bool:
        """Returns True for a class that a node can be rejected for."""
        affinity = affinity_of(pod_class)
        own = pod_class.pod.spec.node_selector is not None or (affinity is not None and affinity.required is not None)
        return own or (self.added is not None and self.added.required is not None)

    def prefers(self, pod_class: PodClass) -> bool:
        """Returns True for a class whose scores can differ between nodes."""
        return any(affinity.preferred for affinity in (self.added, affinity_of(pod_class)) if affinity)

    def _evaluate(self, table: NodeTable, pod_class: PodClass, rows: Rows) -> NDArray[np.int64]:
        if not self.requires(pod_class):  # most classes: no label has to be read
            return np.zeros(table.size, np.int64)[rows]
        matches = own_matches(table, pod_class)
        enforced = required_matches(table, self.added)
        return np.where(enforced, np.where(matches, 0, _NO_MATCH), _NO_ENFORCED_MATCH)[rows]

    def _weigh(self, table: NodeTable, pod_class: PodClass, rows: Rows) -> NDArray[np.int64]:
        weights = np.zeros(table.size, np.int64)
        if not self.prefers(pod_class):
            return weights[rows]
        for affinity in (self.added, affinity_of(pod_class)):
            for preferred in affinity.preferred if affinity else ():
                weights += term_matches(table, preferred.preference) * preferred.weight
        return weights[rows]


def _reads(pod_class: PodClass) -> object:
    return pod_class.pod.spec.node_selector, affinity_of(pod_class)
