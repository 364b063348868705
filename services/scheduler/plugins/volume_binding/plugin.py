"""VolumeBinding: feasible nodes are those from which the volumes of a pod can be reached or provisioned.

Bound claims: the volume's node affinity. Claims that wait for a node: the node that is selected already; else a free
volume that fits and can be reached, or a class that provisions one there. All other claims reject every node.

A pod whose claims still wait is not bound at once: the node is held for it and written to the claims
(`selected-node`), volumes are chosen (`claimRef`), and the pod is bound once all are bound. The node is released after
`bindTimeoutSeconds`, or when a volume can no longer be provisioned or reached.

Source: spec/scheduler-core.md 2.2; upstream Kubernetes pkg/scheduler/framework/plugins/volumebinding.
"""

from typing import ClassVar

import numpy as np

from services.scheduler.cache.cluster_objects import ClusterObjects
from services.scheduler.cache.node_amounts_within_cycle import CycleSnapshot
from services.scheduler.cache.nodes import NodeTable
from services.scheduler.cache.plugin_cache import PluginCache
from services.scheduler.framework.plugin_base import Plugin
from services.scheduler.framework.plugin_extension_points import PluginCycleState
from services.scheduler.framework.plugin_spec import PluginSpec
from services.scheduler.framework.pre_bind_preparation import Preparation, Readiness
from services.scheduler.framework.reasons import Reason
from services.scheduler.kernels.array_types_and_row_selection import Bools, Int64
from services.scheduler.plugins.helper.volume_claims import Claims, claim_keys, claims_of
from services.scheduler.plugins.helper.volume_cycle_state_base import ClaimsCycleState
from services.scheduler.plugins.volume_binding import SPEC
from services.scheduler.plugins.volume_binding.args import VolumeBindingArgs
from services.scheduler.plugins.volume_binding.find_volumes import (
    can_provision,
    free_volumes,
    reachable,
    requested_bytes,
)
from services.scheduler.plugins.volume_binding.pre_bind_volumes import VolumePreparation, readiness
from services.scheduler.state.pod_equivalence_class import PodClass
from shared.kube.storage import SELECTED_NODE, Claim

_CONFLICT, _NONE_TO_BIND, _NO_SPACE, _VOLUME_GONE = 1, 2, 4, 8
_TROUBLE = 16
_CODES = {
    _CONFLICT: "VolumeNodeConflict", _NONE_TO_BIND: "NoVolumeToBind", _NO_SPACE: "NoStorageLeft", _VOLUME_GONE: "VolumeMissing",
}  # fmt: skip


class VolumeBinding(Plugin):
    """Rejects nodes from which a volume cannot be reached, and where none can be provisioned."""

    spec: ClassVar[PluginSpec] = SPEC

    def __init__(self, args: VolumeBindingArgs | None = None) -> None:
        self.args = args or VolumeBindingArgs()

    def readiness(
        self, cluster_objects: ClusterObjects, table: NodeTable, pod_class: PodClass, node: str, saw: int
    ) -> Readiness:
        """The state of the pod's claims."""
        return readiness(cluster_objects.storage, table, pod_class, node, saw)

    def longest_preparation_ns(self) -> int:
        """`bindTimeoutSeconds`."""
        return self.args.timeout_ns

    def new_state(self, snapshot: CycleSnapshot, plugin_cache: PluginCache | None, now_ns: int) -> PluginCycleState:  # noqa: ARG002
        """Filter results are those of `evaluate`."""
        return VolumeBindingState(snapshot)

    def reasons(self, pod_class: PodClass, result: int) -> tuple[Reason, ...]:
        """All problems of the node, or that of a claim."""
        if result >= _TROUBLE:
            problem = pod_class.cached.get(VolumeBinding)
            return (problem if isinstance(problem, Reason) else Reason("ClaimUnbound"),)
        return tuple(Reason(code) for bit, code in _CODES.items() if result & bit)

    def unresolvable(self, pod_class: PodClass, result: int) -> bool:  # noqa: ARG002
        """Preemption cannot help: it moves no volume."""
        return True


class VolumeBindingState(ClaimsCycleState):
    """The plugin for one cycle.

    Attributes:
        taken: volume -> claim, of those that the cycle has chosen.
    """

    def __init__(self, snapshot: CycleSnapshot) -> None:
        super().__init__(snapshot)
        self.taken: dict[str, str] = {}

    def prepare(self, pod_class: PodClass, row: int) -> VolumePreparation | None:
        """The writes that are needed before a pod can be bound to the node; None when all its claims are bound.

        The chosen volumes are taken for the rest of the cycle.
        """
        if not claim_keys(pod_class):
            return None
        storage = self._snapshot.cluster_objects.storage
        claims = claims_of(pod_class, storage)
        if not claims.waiting:
            return None
        table = self._snapshot.table
        choice = VolumePreparation(table.names[row], len(self._results))
        for claim in _smallest_first(claims):
            if _selected(claim) == table.names[row]:
                continue
            volumes = free_volumes(claim, storage, self.taken)
            found = next((volume for volume in volumes if bool(reachable(table, volume)[row])), None)
            if found is not None:
                choice.taken.append(found.metadata.name)
                self.taken[found.metadata.name] = claim.metadata.key
                if found.spec.claim_ref is None and storage.chosen_for(found) != claim.metadata.key:
                    choice.volumes.append((found, claim))
            elif bool(
                can_provision(claim, storage, table)[0][row]
            ):  # else another pod of the cycle has taken the last one
                choice.claims.append(claim)
        return choice

    def undo_prepare(self, preparation: Preparation) -> None:
        """Frees the volumes that it took; classes that were evaluated without them are evaluated again."""
        assert isinstance(preparation, VolumePreparation), "prepare returned it"
        for name in preparation.taken:
            del self.taken[name]
        for pod_class in list(self._results)[preparation.classes :]:
            del self._results[pod_class]

    def evaluate(self, pod_class: PodClass) -> Int64 | None:
        """A filter result is a set of bits, one for each problem."""
        storage, table = self._snapshot.cluster_objects.storage, self._snapshot.table
        claims = claims_of(pod_class, storage)
        if claims.problem is not None:
            pod_class.cached[VolumeBinding] = claims.problem
            return np.full(self._snapshot.size, _TROUBLE, np.int64)
        results = np.zeros(self._snapshot.size, np.int64)
        for _, volume in claims.bound:
            if volume is None:
                results |= _VOLUME_GONE
            else:
                results |= np.where(reachable(table, volume), 0, _CONFLICT)
        if claims.waiting:
            results |= self._evaluate_waiting(claims, table)
        return results if results.any() else None

    def _evaluate_waiting(self, claims: Claims, table: NodeTable) -> Int64:
        """Bits for claims that wait: each needs a free volume, no two of them the same one, or a class that provisions one."""
        storage = self._snapshot.cluster_objects.storage
        size = self._snapshot.size
        none, no_space = np.zeros(size, np.bool_), np.zeros(size, np.bool_)
        used: dict[str, Bools] = {}  # volume -> nodes on which an earlier claim of the pod takes it
        for claim in _smallest_first(claims):
            made, has_space = can_provision(claim, storage, table)
            if node := _selected(claim):
                other_nodes = np.ones(size, np.bool_)
                if node in table.rows:
                    other_nodes[table.rows[node]] = False
                none |= other_nodes | ~made
                no_space |= ~other_nodes & made & ~has_space
                continue
            served = np.zeros(size, np.bool_)
            for volume in free_volumes(claim, storage, self.taken):
                takes = reachable(table, volume) & ~served
                before = used.get(volume.metadata.name)
                if before is not None:
                    takes &= ~before
                used[volume.metadata.name] = takes if before is None else before | takes
                served |= takes
                if served.all():
                    break
            none |= ~served & ~made
            no_space |= ~served & made & ~has_space
        bits: Int64 = none.astype(np.int64) * _NONE_TO_BIND + no_space.astype(np.int64) * _NO_SPACE
        return bits


def _smallest_first(claims: Claims) -> list[Claim]:
    return sorted(claims.waiting, key=lambda claim: (requested_bytes(claim), claim.metadata.key))


def _selected(claim: Claim) -> str:
    return (claim.metadata.annotations or {}).get(SELECTED_NODE, "")
