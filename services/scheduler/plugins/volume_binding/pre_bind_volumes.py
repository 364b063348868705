"""Writes that a pod's claims need before the pod is bound: a free volume's claimRef, a claim's selected node.

Source: upstream Kubernetes pkg/scheduler/framework/plugins/volumebinding/binder.go, BindPodVolumes.
"""

from collections.abc import Iterator

from services.scheduler.cache.nodes import NodeTable
from services.scheduler.cache.volume_catalog import VolumeCatalog
from services.scheduler.framework.pre_bind_preparation import PENDING, READY, Preparation, Readiness
from services.scheduler.plugins.helper.volume_claims import claims_of
from services.scheduler.plugins.volume_binding import SPEC
from services.scheduler.plugins.volume_binding.find_volumes import reachable
from services.scheduler.state.pod_equivalence_class import PodClass
from services.scheduler.state.watched_api_resources import CLAIMS, VOLUMES
from shared.events import Event
from shared.events.intents import FieldsDesired
from shared.kube.storage import BOUND_BY_CONTROLLER, SELECTED_NODE, Claim, PersistentVolume

FIELDS = "volume-binding"


class VolumePreparation(Preparation):
    """Volumes that have to be bound or provisioned before a pod can be bound to a node.

    Attributes:
        volumes: free volumes, each with the claim that it is for.
        claims: claims whose volume is to be provisioned at the node.
        taken: names of the volumes that no other pod of the cycle may take, those of earlier cycles included.
        classes: number of classes that were evaluated before.
    """

    def __init__(self, node: str, classes: int) -> None:
        self.node = node
        self.classes = classes
        self.taken: list[str] = []
        self.volumes: list[tuple[PersistentVolume, Claim]] = []
        self.claims: list[Claim] = []

    def events(self) -> Iterator[Event]:
        """The intents for the gateway."""
        for volume, claim in self.volumes:
            reference = {
                "apiVersion": "v1", "kind": "PersistentVolumeClaim", "namespace": claim.metadata.namespace,
                "name": claim.metadata.name, "uid": claim.metadata.uid,
            }  # fmt: skip
            patch = {"metadata": {"annotations": {BOUND_BY_CONTROLLER: "yes"}}, "spec": {"claimRef": reference}}
            yield FieldsDesired(
                resource=VOLUMES, name=volume.metadata.name, fields=FIELDS, patch=patch, uid=volume.metadata.uid
            )
        for claim in self.claims:
            yield _selected_node(claim, self.node)


def readiness(storage: VolumeCatalog, table: NodeTable, pod_class: PodClass, node: str, saw: int) -> Readiness:
    """Returns whether the claims of a pod are bound to volumes that its node can reach, or can no longer be.

    A claim whose provisioner rejects the node loses its selected node: it is withdrawn, so that the gateway does not
    write it again, and another node can be chosen. A claim that was deleted and came again has none.
    Source: upstream binder.go, checkBindings.

    Args:
        saw: the `cluster` seq that the cycle had read which chose the volumes.
    """
    claims = claims_of(pod_class, storage)
    if claims.problem is not None:
        if claims.problem.code == "ClaimUnbound":  # it has the name of its volume, and is not bound yet
            return PENDING
        return Readiness(
            is_ready=False, problem=SPEC.reasons[claims.problem.code].english.format(detail=claims.problem.detail)
        )
    rejected = [claim for claim in claims.waiting if storage.unselected.get(claim.metadata.key, 0) > saw]
    if rejected:
        names = ", ".join(claim.metadata.name for claim in rejected)
        return Readiness(
            is_ready=False,
            problem=f"no volume can be provisioned on {node} for {names}, or it is another claim by now",
            withdrawn=tuple(_selected_node(claim, None) for claim in rejected),
        )
    for _, volume in claims.bound:
        if volume is not None and not reachable(table, volume)[table.rows[node]]:
            return Readiness(is_ready=False, problem=f"volume {volume.metadata.name} cannot be reached from {node}")
    taken = [claim.metadata.name for claim in claims.waiting if _is_taken_by_another(claim, storage)]
    if taken:
        return Readiness(is_ready=False, problem=f"the volume for {', '.join(taken)} was taken by another claim")
    is_bound = not claims.waiting and all(volume is not None for _, volume in claims.bound)
    return READY if is_bound else PENDING


def _is_taken_by_another(claim: Claim, storage: VolumeCatalog) -> bool:
    for uid, chosen in storage.chosen.items():
        volume = storage.volumes.get(chosen.volume) if chosen.claim == claim.metadata.key else None
        reference = volume.spec.claim_ref if volume is not None and volume.metadata.uid == uid else None
        if reference is not None and f"{reference.namespace}/{reference.name}" != claim.metadata.key:
            return SELECTED_NODE not in (claim.metadata.annotations or {})
    return False


def _selected_node(claim: Claim, node: str | None) -> FieldsDesired:
    patch = {"metadata": {"annotations": {SELECTED_NODE: node}}}
    return FieldsDesired(resource=CLAIMS, name=claim.metadata.key, fields=FIELDS, patch=patch, uid=claim.metadata.uid)
