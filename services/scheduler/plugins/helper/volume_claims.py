"""The claims of a pod by their state: bound, waiting for a node, or in a state in which no node is feasible.

Source: spec/scheduler-core.md 2.2; upstream Kubernetes pkg/scheduler/framework/plugins/volumebinding
(GetPodVolumeClaims).
"""

from typing import NamedTuple

from services.scheduler.cache.volume_catalog import VolumeCatalog
from services.scheduler.framework.reasons import Reason
from services.scheduler.state.pod_equivalence_class import PodClass
from shared.kube.storage import Claim, PersistentVolume


class Claims(NamedTuple):
    """The claims of a class of pods.

    Attributes:
        bound: claims with their volume; None for a volume that does not exist.
        waiting: claims whose volume is provisioned or chosen once the pod has a node.
        problem: the reason for which no node is feasible, if any.
    """

    bound: tuple[tuple[Claim, PersistentVolume | None], ...] = ()
    waiting: tuple[Claim, ...] = ()
    problem: Reason | None = None


def claim_keys(pod_class: PodClass) -> tuple[str, ...]:
    """`namespace/name` of each claim, each once."""
    keys: tuple[str, ...] | None = pod_class.cached.get(Claims)
    if keys is None:
        keys = pod_class.cached[Claims] = tuple(
            dict.fromkeys(
                f"{pod_class.namespace}/{volume.persistent_volume_claim.claim_name}"
                for volume in pod_class.pod.spec.volumes
                if volume.persistent_volume_claim
            )
        )
    return keys


def claims_of(pod_class: PodClass, storage: VolumeCatalog) -> Claims:
    """The claims of a class by their state. The first problem is the one that is reported."""
    bound: list[tuple[Claim, PersistentVolume | None]] = []
    waiting: list[Claim] = []
    for key in claim_keys(pod_class):
        claim = storage.claims.get(key)
        name = key.partition("/")[2]
        if claim is None:
            return Claims(problem=Reason("ClaimMissing", name))
        if claim.status.phase == "Lost":
            return Claims(problem=Reason("ClaimLost", name))
        if claim.metadata.deletion_timestamp is not None:
            return Claims(problem=Reason("ClaimDeleting", name))
        if claim.is_bound:
            bound.append((claim, storage.volumes.get(claim.spec.volume_name)))
            continue
        class_ = storage.class_of(claim)
        if class_ is None or not class_.waits or claim.spec.volume_name:
            return Claims(problem=Reason("ClaimUnbound"))
        waiting.append(claim)
    return Claims(tuple(bound), tuple(waiting))
