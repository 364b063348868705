"""Writes that a pod's claims need before the pod is bound: a free volume's claimRef, a claim's selected node.

Source: upstream Kubernetes pkg/scheduler/framework/plugins/volumebinding/binder.go, BindPodVolumes.
"""

from collections.abc import Iterator

from services.scheduler.framework.pre_bind_preparation import Preparation
from services.scheduler.state.other_watched_resources import CLAIMS, VOLUMES
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

    plugin = "VolumeBinding"
    reason = "VolumesPending"

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
            patch = {"metadata": {"annotations": {SELECTED_NODE: self.node}}}
            yield FieldsDesired(
                resource=CLAIMS, name=claim.metadata.key, fields=FIELDS, patch=patch, uid=claim.metadata.uid
            )
